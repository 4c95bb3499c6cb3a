// PendingCall: one asynchronous call's completion, with its deadline and its cancellation. Whichever comes first
// completes the call, once; a later result is dropped (a lease in it is thereby released).
// Thread safety: any thread.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "cachestore/movement/worker.h"
#include "cachestore/prefix_store.h"

namespace kvist {

// Why a call should not even begin; OK if it should.
inline absl::Status CheckCallOptions(const CallOptions& options) {
  if (options.cancel.stop_requested()) return absl::CancelledError("cancelled by the caller");
  if (options.timeout <= absl::ZeroDuration()) return absl::DeadlineExceededError("no time was given");
  return absl::OkStatus();
}

// Result is what the completion takes: absl::StatusOr<T> or absl::Status.
template <typename Result>
class PendingCall : public std::enable_shared_from_this<PendingCall<Result>> {
 public:
  using Completion = absl::AnyInvocable<void(Result) &&>;

  // Begins; the call may be over at once. `worker` must outlive the completion of the call.
  static std::shared_ptr<PendingCall> Begin(Worker* worker, const CallOptions& options, Completion done) {
    auto call = std::make_shared<PendingCall>(worker, std::move(done));
    if (const absl::Status status = CheckCallOptions(options); !status.ok()) {
      call->Complete(Result(status));
      return call;
    }
    std::weak_ptr<PendingCall> weak = call;
    if (options.timeout != absl::InfiniteDuration()) {
      absl::MutexLock lock(&call->mutex_);
      call->timer_ = worker->PostAfter(options.timeout, [weak] {
        if (const auto self = weak.lock()) self->Complete(Result(absl::DeadlineExceededError("the call's time is up")));
      });
    }
    if (options.cancel.stop_possible()) {
      call->cancel_.emplace(options.cancel, [weak] {
        if (const auto self = weak.lock()) self->Complete(Result(absl::CancelledError("cancelled by the caller")));
      });
    }
    return call;
  }

  PendingCall(Worker* worker, Completion done) : worker_(worker), done_(std::move(done)) {}

  // No-op if the call is over.
  void Complete(Result result) {
    if (over_.exchange(true)) return;
    std::optional<Worker::TimerId> timer;
    {
      absl::MutexLock lock(&mutex_);
      timer = timer_;
    }
    if (timer) worker_->Cancel(*timer);
    Completion done = std::move(done_);
    std::move(done)(std::move(result));
  }

  bool over() const { return over_; }

 private:
  Worker* const worker_;
  std::atomic<bool> over_ = false;
  Completion done_;  // belongs to whoever set over_
  absl::Mutex mutex_;
  std::optional<Worker::TimerId> timer_ ABSL_GUARDED_BY(mutex_);
  std::optional<std::stop_callback<std::function<void()>>> cancel_;  // set once, in Begin
};

}  // namespace kvist
