#include "cachestore/movement/worker.h"

#include "cachestore/io/clock.h"

namespace kvist {
namespace {

// Deadlines are intervals: the wall clock has no say in them.
absl::Duration Now() { return SystemClock().Monotonic(); }

}  // namespace

Worker::Worker() : thread_([this] { Run(); }) {}

Worker::~Worker() {
  {
    absl::MutexLock lock(&mutex_);
    stop_ = true;
    wake_.Signal();
  }
  thread_.join();
}

void Worker::Post(Task task) {
  absl::MutexLock lock(&mutex_);
  tasks_.push_back(std::move(task));
  wake_.Signal();
}

Worker::TimerId Worker::PostAfter(absl::Duration delay, Task task) {
  absl::MutexLock lock(&mutex_);
  const TimerId id{Now() + delay, next_timer_++};
  timers_.emplace(id, std::move(task));
  if (timers_.begin()->first == id) wake_.Signal();
  return id;
}

void Worker::Cancel(const TimerId& timer) {
  Task task;  // destroyed outside the lock: it may own much
  absl::MutexLock lock(&mutex_);
  if (const auto it = timers_.find(timer); it != timers_.end()) {
    task = std::move(it->second);
    timers_.erase(it);
  }
}

void Worker::Run() {
  absl::MutexLock lock(&mutex_);
  while (true) {
    Task task;
    if (!timers_.empty() && timers_.begin()->first.first <= Now()) {
      task = std::move(timers_.begin()->second);
      timers_.erase(timers_.begin());
    } else if (!tasks_.empty()) {
      task = std::move(tasks_.front());
      tasks_.pop_front();
    } else if (stop_) {
      return;
    } else {
      wake_.WaitWithTimeout(&mutex_, timers_.empty() ? absl::InfiniteDuration() : timers_.begin()->first.first - Now());
      continue;
    }
    mutex_.Unlock();
    std::move(task)();
    task = nullptr;
    mutex_.Lock();
  }
}

}  // namespace kvist
