// One collective between its issue and its Work. Private to process_group*.cc.
#pragma once

#include <functional>
#include <string>
#include <utility>

#include "aten/device/errors.h"
#include "distributed/process_group.h"

namespace neuron::distributed {

inline char* Address(const at::Tensor& tensor) {
  return static_cast<char*>(tensor.numel() == 0 ? nullptr : tensor.mutable_data_ptr());
}

// Throws ValueError, naming the caller, for tensors that the backend does not take.
const at::Tensor& Checked(const char* name, const at::Tensor& tensor);
const at::Tensor& Single(const char* name, const ProcessGroupNeuron::Tensors& tensors);

// While it lives, the stream of the collective is current: copies made before and after Submit are
// in order with it.
class ProcessGroupNeuron::Call {
 public:
  struct Options {
    c10d::OpType type;
    const char* name;
    bool async;
    std::chrono::milliseconds timeout;
  };
  // device: of the tensors. Throws if the group is broken.
  Call(ProcessGroupNeuron& group, const Options& options, int device);
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  Description& description() { return description_; }
  // Sets what the ranks compare: the dtype and, if uniform, the number of elements.
  void Describe(const at::Tensor& tensor, bool uniform = true);
  // Dense memory with the tensor's elements; a copy if it has gaps.
  at::Tensor Dense(const at::Tensor& tensor);
  // As Dense, for a result: Finish copies it back.
  at::Tensor DenseResult(const at::Tensor& tensor, bool keep_values);
  // The tensors' elements one after the other, in new memory.
  at::Tensor Joined(const Tensors& list);
  // Fills the tensors, one after the other, with what Submit's body will have put into `flat`.
  void Spread(const at::Tensor& flat, const Tensors& list);
  void Submit(std::function<void(const Round&)> body);
  WorkPtr Finish(Tensors outputs, bool blocking = false);

 private:
  void Use(const at::Tensor& tensor);

  ProcessGroupNeuron& group_;
  const Options options_;
  runtime::Stream& caller_;
  runtime::Stream* stream_;
  Description description_;
  std::shared_ptr<Outcome> outcome_ = std::make_shared<Outcome>();
  std::vector<std::pair<at::Tensor, at::Tensor>> copy_back_;  // to, from
};

}  // namespace neuron::distributed
