// Join: runs its completion when its last reference goes, with the first error reported to it. Many calls' completions
// hold one, so that the last of them continues the work.
// Thread safety: any thread.
#pragma once

#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "cachestore/prefix_store.h"

namespace kvist {

class Join {
 public:
  explicit Join(DoneStatus done) : done_(std::move(done)) {}
  ~Join() {
    absl::Status first;
    {
      absl::MutexLock lock(&mutex_);
      first = std::move(first_);
    }
    std::move(done_)(std::move(first));
  }
  Join(const Join&) = delete;
  Join& operator=(const Join&) = delete;

  void Report(const absl::Status& status) {
    absl::MutexLock lock(&mutex_);
    first_.Update(status);
  }

 private:
  absl::Mutex mutex_;
  absl::Status first_ ABSL_GUARDED_BY(mutex_);
  DoneStatus done_;
};

}  // namespace kvist
