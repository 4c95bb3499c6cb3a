// GuardedClock: the store's clock, whose wall time is guarded by RetentionClock. Every part of the store tells the
// time by this one, so that nothing it records stems from a wall clock that jumped.
// Thread safety: any thread.
#pragma once

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "cachestore/io/clock.h"
#include "cachestore/retention/retention_clock.h"

namespace kvist {

class GuardedClock final : public Clock {
 public:
  // `source` must outlive it.
  explicit GuardedClock(const Clock* source)
      : source_(source), guard_(source->Wall(), source->Monotonic(), absl::InfinitePast()) {}

  // Once the store's newest time is known: see RetentionClock.
  void StartFrom(absl::Time newest_known) {
    absl::MutexLock lock(&mutex_);
    guard_ = RetentionClock(source_->Wall(), source_->Monotonic(), newest_known);
  }

  absl::Time Wall() const override {
    absl::MutexLock lock(&mutex_);
    return guard_.Advance(source_->Wall(), source_->Monotonic());
  }
  absl::Duration Monotonic() const override { return source_->Monotonic(); }

 private:
  const Clock* const source_;
  mutable absl::Mutex mutex_;
  mutable RetentionClock guard_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace kvist
