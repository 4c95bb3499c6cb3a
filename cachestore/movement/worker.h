// Worker: one thread that runs what may block (index updates, drops) and what waits for a time (deadlines, sweeps).
// Thread safety: any thread.
#pragma once

#include <cstdint>
#include <deque>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/btree_map.h"
#include "absl/functional/any_invocable.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace kvist {

class Worker {
 public:
  using Task = absl::AnyInvocable<void() &&>;
  // Names a delayed task; first by due time (monotonic).
  using TimerId = std::pair<absl::Duration, std::uint64_t>;

  Worker();
  // Runs what was posted, forgets timers.
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  void Post(Task task);
  TimerId PostAfter(absl::Duration delay, Task task);
  // The task won't start after this unless it has begun.
  void Cancel(const TimerId& timer);

 private:
  void Run();

  absl::Mutex mutex_;
  std::deque<Task> tasks_ ABSL_GUARDED_BY(mutex_);
  absl::btree_map<TimerId, Task> timers_ ABSL_GUARDED_BY(mutex_);
  std::uint64_t next_timer_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  absl::CondVar wake_;
  std::thread thread_;
};

}  // namespace kvist
