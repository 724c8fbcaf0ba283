// A collective that was put into a stream.
#pragma once

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <memory>
#include <mutex>
#include <vector>

#include "platform/driver.h"
#include "runtime/stream.h"

namespace neuron::distributed {

// What became of a collective; shared with the queue that runs it.
struct Outcome {
  std::mutex mutex;
  std::exception_ptr error;
  std::exception_ptr Get() {
    const std::lock_guard lock(mutex);
    return error;
  }
};

class NeuronWork final : public c10d::Work {
 public:
  NeuronWork(int rank, c10d::OpType type, uint64_t sequence, runtime::Stream& stream,
             std::shared_ptr<platform::Event> done, std::shared_ptr<Outcome> outcome,
             std::vector<at::Tensor> outputs, bool blocking);

  bool isCompleted() override { return done_->Query(); }
  bool isSuccess() const override { return done_->Query() && outcome_->Get() == nullptr; }
  std::exception_ptr exception() const override { return outcome_->Get(); }
  std::vector<at::Tensor> result() override { return outputs_; }
  void synchronize() override;
  void blockCurrentStream() override { synchronize(); }
  // The current stream waits; the caller does if it gave a timeout, or for a barrier.
  bool wait(std::chrono::milliseconds timeout) override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }
  uint64_t getSequencenumber() const override { return sequence_; }

 private:
  const uint64_t sequence_;
  runtime::Stream& stream_;
  const std::shared_ptr<platform::Event> done_;
  const std::shared_ptr<Outcome> outcome_;
  const std::vector<at::Tensor> outputs_;
  const bool blocking_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

}  // namespace neuron::distributed
