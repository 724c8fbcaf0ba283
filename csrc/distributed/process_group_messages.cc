// send and recv of ProcessGroupNeuron.
#include <ATen/ops/empty.h>

#include "aten/device/errors.h"
#include "distributed/call.h"

namespace neuron::distributed {

ProcessGroupNeuron::WorkPtr ProcessGroupNeuron::Transmit(const at::Tensor& tensor, bool sends,
                                                         int peer, int tag) {
  const char* name = sends ? "send" : "recv";
  TORCH_CHECK_VALUE(peer == kAnySource || (peer >= 0 && peer < size_), name, ": rank ", peer,
                    " is not in the group of ", size_, " ranks");
  const Hosts& hosts = shared_->hosts;
  TORCH_CHECK_NOT_IMPLEMENTED(
      hosts.count() == 1 || (peer != kAnySource && hosts.HostOf(peer) == hosts.own()), name,
      ": messages between hosts (here with ",
      peer == kAnySource ? "any rank" : StrCat("rank ", peer),
      ") are not supported by the backend \"neuron\": move the tensors to the CPU and use a group "
      "of "
      "the backend \"gloo\"");
  const std::string broken = shared_->Broken();
  TORCH_CHECK_WITH(DistBackendError, broken.empty(), name,
                   ": the process group failed before: ", broken);
  const bool gaps = !tensor.is_contiguous();
  const auto transfer = std::make_shared<Transfer>();
  transfer->sends = sends;
  transfer->peer = peer == kAnySource ? peer : hosts.LocalOf(peer);
  transfer->tag = tag;
  transfer->number = sends ? ++sends_ : ++receives_;
  // Without a Python object: the thread that releases it has no interpreter.
  transfer->tensor = sends  ? tensor.contiguous().alias()
                     : gaps ? at::empty(tensor.sizes(), tensor.options())
                            : tensor.alias();
  transfer->timeout = timeout_;
  transfer->data = Address(transfer->tensor);
  transfer->bytes = static_cast<int64_t>(tensor.nbytes());
  transfer->text =
      StrCat(name, " number ", transfer->number, " of ", tensor.numel(), " elements of ",
             c10::toString(tensor.scalar_type()), sends ? " to " : " from ",
             peer == kAnySource ? "any rank" : StrCat("rank ", peer), ", tag ", tag);
  const int device = tensor.device().index();
  auto work = c10::make_intrusive<TransferWork>(rank_, transfer, Tensors{tensor}, device);
  if (!sends && gaps) work->FillFrom(transfer->tensor);
  aten::Guarded([&] {
    runtime::Stream& stream = runtime::CurrentStream(device);
    const bool ready = !stream.started() || stream.queue().Idle();
    shared_->transfers.Post(transfer, ready);
    if (!ready) {
      stream.queue().Enqueue(
          [shared = shared_, transfer] { shared->transfers.SetReady(transfer); });
    }
  });
  return Issued(work);
}

ProcessGroupNeuron::WorkPtr ProcessGroupNeuron::send(Tensors& tensors, int destination, int tag) {
  return Transmit(Single("send", tensors), true, destination, tag);
}

ProcessGroupNeuron::WorkPtr ProcessGroupNeuron::recv(Tensors& tensors, int source, int tag) {
  TORCH_CHECK_VALUE(source != kAnySource, "recv: rank ", source, " is not in the group");
  return Transmit(Single("recv", tensors), false, source, tag);
}

ProcessGroupNeuron::WorkPtr ProcessGroupNeuron::recvAnysource(Tensors& tensors, int tag) {
  return Transmit(Single("recv", tensors), false, kAnySource, tag);
}

}  // namespace neuron::distributed
