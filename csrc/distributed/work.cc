#include "distributed/work.h"

#include <thread>

#include "aten/device/errors.h"

namespace neuron::distributed {

NeuronWork::NeuronWork(int rank, c10d::OpType type, uint64_t sequence, runtime::Stream& stream,
                       std::shared_ptr<platform::Event> done, std::shared_ptr<Outcome> outcome,
                       std::vector<at::Tensor> outputs, bool blocking)
    : Work(rank, type),
      sequence_(sequence),
      stream_(stream),
      done_(std::move(done)),
      outcome_(std::move(outcome)),
      outputs_(std::move(outputs)),
      blocking_(blocking) {
  const c10::Device device(c10::DeviceType::PrivateUse1,
                           static_cast<c10::DeviceIndex>(stream.device()));
  future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()),
                                                     std::vector<c10::Device>{device});
  // Complete in stream order: its waiters' streams wait for the event that it records here, with
  // this work's stream current.
  future_->markCompleted(c10::IValue(outputs_));
}

void NeuronWork::synchronize() {
  aten::Guarded([&] {
    runtime::Stream& current = runtime::CurrentStream(stream_.device());
    if (&current != &stream_) current.queue().WaitFor(*done_);
  });
}

bool NeuronWork::wait(std::chrono::milliseconds timeout) {
  synchronize();
  if (!blocking_ && timeout == kNoTimeout) return true;
  if (timeout == kNoTimeout) {
    done_->Wait();
  } else {
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    while (!done_->Query()) {
      TORCH_CHECK_WITH(DistBackendError, std::chrono::steady_clock::now() < deadline,
                       "collective number ", sequence_, " did not end within ", timeout.count(),
                       " ms");
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  if (const auto error = outcome_->Get()) std::rethrow_exception(error);
  return true;
}

}  // namespace neuron::distributed
