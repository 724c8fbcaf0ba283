// What c10d's calls return: the handles of collectives, of messages and of several of them.
#pragma once

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "distributed/outcome.h"
#include "distributed/transfers.h"
#include "platform/driver.h"
#include "runtime/stream.h"

namespace neuron::distributed {

// A collective that was put into a stream.
class NeuronWork final : public c10d::Work {
 public:
  // text: "all_reduce number 2", for errors.
  NeuronWork(int rank, c10d::OpType type, uint64_t sequence, std::string text,
             runtime::Stream& stream, std::shared_ptr<platform::Event> done,
             std::shared_ptr<Outcome> outcome, std::vector<at::Tensor> outputs, bool blocking);

  bool isCompleted() override { return done_->Query(); }
  bool isSuccess() const override { return done_->Query() && outcome_->error() == nullptr; }
  std::exception_ptr exception() const override { return outcome_->error(); }
  std::vector<at::Tensor> result() override { return outputs_; }
  // The current stream waits; if the collective failed, that stream has failed with it.
  void synchronize() override;
  void blockCurrentStream() override { synchronize(); }
  // As synchronize; the caller waits too if it gave a timeout, or for a barrier.
  bool wait(std::chrono::milliseconds timeout) override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }
  uint64_t getSequencenumber() const override { return sequence_; }

 private:
  void RaiseOnce();

  const uint64_t sequence_;
  const std::string text_;
  runtime::Stream& stream_;
  const std::shared_ptr<platform::Event> done_;
  const std::shared_ptr<Outcome> outcome_;
  const std::vector<at::Tensor> outputs_;
  const bool blocking_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

// A message that is sent or received beside the streams.
class TransferWork final : public c10d::Work {
 public:
  // output: what is received into.
  TransferWork(int rank, std::shared_ptr<Transfer> transfer, std::vector<at::Tensor> output,
               int device);
  // The output has gaps: `dense` is received into, and copied by the first synchronize.
  void FillFrom(at::Tensor dense);

  bool isCompleted() override { return outcome_->Done(); }
  bool isSuccess() const override { return outcome_->Done() && outcome_->error() == nullptr; }
  std::exception_ptr exception() const override { return outcome_->error(); }
  std::vector<at::Tensor> result() override { return output_; }
  // Of a finished receive. Throws before, and for a send.
  int sourceRank() const override;
  // The current stream waits; a failure is thrown here or in that stream. A tensor with gaps is
  // filled here, in the current stream.
  void synchronize() override;
  void blockCurrentStream() override { synchronize(); }
  // The caller waits too if it gave a timeout, or if any rank may be the source.
  bool wait(std::chrono::milliseconds timeout) override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  uint64_t getSequencenumber() const override { return number_; }

 private:
  const std::string text_;
  const uint64_t number_;
  const bool sends_, any_source_;
  const int device_;
  const std::shared_ptr<Outcome> outcome_;
  const std::vector<at::Tensor> output_;
  std::mutex gaps_mutex_;
  at::Tensor dense_;                              // what is still to be copied to the output
  std::shared_ptr<platform::Event> gaps_filled_;  // where in a stream that is done
};

// All that was issued between startCoalescing and endCoalescing.
class CoalescedWork final : public c10d::Work {
 public:
  CoalescedWork(int rank, uint64_t sequence, std::vector<c10::intrusive_ptr<c10d::Work>> works)
      : Work(rank, c10d::OpType::COALESCED), sequence_(sequence), works_(std::move(works)) {}

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  std::vector<at::Tensor> result() override;
  void synchronize() override;
  void blockCurrentStream() override { synchronize(); }
  // timeout: for all together.
  bool wait(std::chrono::milliseconds timeout) override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  uint64_t getSequencenumber() const override { return sequence_; }

 private:
  const uint64_t sequence_;
  const std::vector<c10::intrusive_ptr<c10d::Work>> works_;
};

}  // namespace neuron::distributed
