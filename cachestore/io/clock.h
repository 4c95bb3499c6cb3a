// Time, injected. Expiry goes by wall clock (it must mean the same after a restart), intervals by monotonic clock.
// Thread safety: any thread.
#pragma once

#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace kvist {

class Clock {
 public:
  virtual ~Clock() = default;
  virtual absl::Time Wall() const = 0;
  virtual absl::Duration Monotonic() const = 0;  // since an arbitrary start; never goes back
};

class SystemClock final : public Clock {
 public:
  absl::Time Wall() const override;
  absl::Duration Monotonic() const override;
};

// A clock that a test steers.
class FakeClock final : public Clock {
 public:
  explicit FakeClock(absl::Time start = absl::FromUnixSeconds(1'800'000'000)) : wall_(start) {}
  absl::Time Wall() const override {
    absl::MutexLock lock(&mutex_);
    return wall_;
  }
  absl::Duration Monotonic() const override {
    absl::MutexLock lock(&mutex_);
    return monotonic_;
  }
  void Advance(absl::Duration by) {
    absl::MutexLock lock(&mutex_);
    wall_ += by;
    monotonic_ += by;
  }
  // The wall clock is set; monotonic time goes on undisturbed.
  void JumpWall(absl::Duration by) {
    absl::MutexLock lock(&mutex_);
    wall_ += by;
  }

 private:
  mutable absl::Mutex mutex_;
  absl::Time wall_ ABSL_GUARDED_BY(mutex_);
  absl::Duration monotonic_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace kvist
