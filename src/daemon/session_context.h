// SessionContext: what all sessions of one server share.
// Thread safety: any thread.
#pragma once

#include <algorithm>
#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "cachestore/local_store.h"
#include "src/daemon/limits.h"

namespace kvist::daemon {

// Counters for tests, logs and the stop.
struct ServerStats {
  std::uint64_t sessions = 0;
  std::uint64_t operations = 0;  // store calls under way
  std::uint64_t leased_blocks = 0;
  std::uint64_t staging_bytes = 0;
};

class SessionContext {
 public:
  SessionContext(LocalStore* store, const Limits& limits) : store_(store), limits_(limits) {}

  LocalStore& store() const { return *store_; }
  const Limits& limits() const { return limits_; }

  // As much of `wanted` as the limits leave; whole pages. More than DRAM could take in at once helps nobody.
  std::uint64_t TakeStaging(std::uint64_t wanted) {
    absl::MutexLock lock(&mutex_);
    const std::uint64_t left = limits_.staging_total - std::min(limits_.staging_total, stats_.staging_bytes);
    const std::uint64_t granted =
        std::min({wanted, limits_.staging_per_client, store_->arena_bytes(), left}) / 4096 * 4096;
    stats_.staging_bytes += granted;
    return granted;
  }
  void ReturnStaging(std::uint64_t bytes) {
    absl::MutexLock lock(&mutex_);
    stats_.staging_bytes -= bytes;
  }

  void OperationBegins() {
    absl::MutexLock lock(&mutex_);
    ++stats_.operations;
  }
  void OperationEnds() {
    absl::MutexLock lock(&mutex_);
    --stats_.operations;
  }
  // False if some still run after `timeout`.
  bool AwaitNoOperations(absl::Duration timeout) {
    absl::MutexLock lock(&mutex_);
    return mutex_.AwaitWithTimeout(absl::Condition(this, &SessionContext::Idle), timeout);
  }

  void AddLeased(std::int64_t blocks) {
    absl::MutexLock lock(&mutex_);
    stats_.leased_blocks += static_cast<std::uint64_t>(blocks);
  }

  void SessionBegins() {
    absl::MutexLock lock(&mutex_);
    ++stats_.sessions;
  }
  void SessionEnds() {
    absl::MutexLock lock(&mutex_);
    --stats_.sessions;
  }

  ServerStats stats() const {
    absl::MutexLock lock(&mutex_);
    return stats_;
  }

 private:
  bool Idle() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stats_.operations == 0; }

  LocalStore* const store_;
  const Limits limits_;
  mutable absl::Mutex mutex_;
  ServerStats stats_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace kvist::daemon
