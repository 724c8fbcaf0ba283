#include "distributed/work.h"

#include <algorithm>
#include <utility>

#include "aten/device/errors.h"
#include "runtime/device.h"

namespace neuron::distributed {
namespace {

using Future = c10::ivalue::Future;

// Complete in stream order: its waiters' streams wait for the events that it records here, in the
// device's current stream.
c10::intrusive_ptr<Future> FutureOf(const std::vector<at::Tensor>& outputs, int device) {
  const c10::Device c10_device(c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(device));
  auto future = c10::make_intrusive<Future>(c10::ListType::create(c10::TensorType::get()),
                                            std::vector<c10::Device>{c10_device});
  future->markCompleted(c10::IValue(outputs));
  return future;
}

// Throws after `timeout`.
void WaitInCaller(const Outcome& outcome, std::chrono::milliseconds timeout,
                  const std::string& text) {
  const bool forever = timeout == kNoTimeout;
  const bool done = outcome.Wait(forever ? std::nullopt : std::optional(timeout));
  TORCH_CHECK_WITH(DistBackendError, done, text, " did not end within ", timeout.count(),
                   " ms, the timeout of this wait");
}

}  // namespace

NeuronWork::NeuronWork(int rank, c10d::OpType type, uint64_t sequence, std::string text,
                       runtime::Stream& stream, std::shared_ptr<platform::Event> done,
                       std::shared_ptr<Outcome> outcome, std::vector<at::Tensor> outputs,
                       bool blocking)
    : Work(rank, type),
      sequence_(sequence),
      text_(std::move(text)),
      stream_(stream),
      done_(std::move(done)),
      outcome_(std::move(outcome)),
      outputs_(std::move(outputs)),
      blocking_(blocking),
      future_(FutureOf(outputs_, stream.device())) {}

void NeuronWork::synchronize() {
  aten::Guarded([&] {
    runtime::Stream& current = runtime::CurrentStream(stream_.device());
    if (&current != &stream_) current.queue().WaitFor(*done_);
  });
}

// The streams hold the failure too: whoever is told by the caller's wait is not told again by them.
void NeuronWork::RaiseOnce() {
  std::exception_ptr error = outcome_->error();
  if (error == nullptr) return;
  for (runtime::Stream* stream : {&runtime::CurrentStream(stream_.device()), &stream_}) {
    try {
      aten::Guarded([&] { stream->queue().Synchronize(); });
    } catch (...) {
      error = std::current_exception();
    }
  }
  std::rethrow_exception(error);
}

bool NeuronWork::wait(std::chrono::milliseconds timeout) {
  synchronize();
  if (!blocking_ && timeout == kNoTimeout) return true;
  WaitInCaller(*outcome_, timeout, text_);
  RaiseOnce();
  done_->Wait();  // copies to outputs with gaps
  return true;
}

TransferWork::TransferWork(int rank, std::shared_ptr<Transfer> transfer,
                           std::vector<at::Tensor> output, int device)
    : Work(rank, transfer->sends                ? c10d::OpType::SEND
                 : transfer->peer == kAnySource ? c10d::OpType::RECVANYSOURCE
                                                : c10d::OpType::RECV),
      text_(transfer->text),
      number_(transfer->number),
      sends_(transfer->sends),
      any_source_(transfer->peer == kAnySource),
      device_(device),
      outcome_(transfer->outcome),
      output_(std::move(output)) {}

void TransferWork::FillFrom(at::Tensor dense) {
  const std::lock_guard lock(gaps_mutex_);
  dense_ = std::move(dense);
}

int TransferWork::sourceRank() const {
  TORCH_CHECK_VALUE(!sends_, "a send has no source rank: ", text_);
  TORCH_CHECK(outcome_->Done(), "the source rank is not known before the end of ", text_);
  outcome_->Check();
  return outcome_->source();
}

void TransferWork::synchronize() {
  outcome_->Check();
  runtime::Stream& current = runtime::CurrentStream(device_);
  if (!outcome_->Done()) {
    aten::Guarded([&] {
      current.queue().Enqueue([outcome = outcome_] {
        outcome->Wait();
        outcome->Check();
      });
    });
  }
  const std::lock_guard lock(gaps_mutex_);
  if (dense_.defined()) {
    const at::Tensor dense = std::exchange(dense_, at::Tensor());
    output_.front().copy_(dense);
    gaps_filled_ = runtime::GetDevice(device_).CreateEvent(false);
    aten::Guarded([&] { current.queue().Record(*gaps_filled_); });
  } else if (gaps_filled_ != nullptr) {
    aten::Guarded([&] { current.queue().WaitFor(*gaps_filled_); });
  }
}

bool TransferWork::wait(std::chrono::milliseconds timeout) {
  synchronize();
  if (any_source_ || timeout != kNoTimeout) {
    WaitInCaller(*outcome_, timeout, text_);
    outcome_->Check();
  }
  return true;
}

c10::intrusive_ptr<Future> TransferWork::getFuture() {
  synchronize();
  return FutureOf(output_, device_);
}

bool CoalescedWork::isCompleted() {
  return std::all_of(works_.begin(), works_.end(), [](auto& work) { return work->isCompleted(); });
}

bool CoalescedWork::isSuccess() const {
  return std::all_of(works_.begin(), works_.end(), [](auto& work) { return work->isSuccess(); });
}

std::exception_ptr CoalescedWork::exception() const {
  for (const auto& work : works_)
    if (const auto error = work->exception()) return error;
  return nullptr;
}

std::vector<at::Tensor> CoalescedWork::result() {
  std::vector<at::Tensor> out;
  for (const auto& work : works_)
    for (const at::Tensor& tensor : work->result()) out.push_back(tensor);
  return out;
}

void CoalescedWork::synchronize() {
  for (const auto& work : works_) work->synchronize();
}

bool CoalescedWork::wait(std::chrono::milliseconds timeout) {
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + timeout;
  for (const auto& work : works_) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
    work->wait(timeout == kNoTimeout ? timeout : std::max(left, std::chrono::milliseconds(1)));
  }
  return true;
}

c10::intrusive_ptr<Future> CoalescedWork::getFuture() {
  synchronize();
  return FutureOf(result(), runtime::CurrentDevice());
}

}  // namespace neuron::distributed
