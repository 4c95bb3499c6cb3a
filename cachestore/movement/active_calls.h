// ActiveCalls: counts the asynchronous calls under way, so that a store can wait for them before it goes.
// Thread safety: any thread.
#pragma once

#include <cstddef>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace kvist {

class ActiveCalls {
 public:
  // Counts until the result's last copy goes.
  std::shared_ptr<void> Enter() {
    absl::MutexLock lock(&mutex_);
    ++count_;
    return std::make_shared<Token>(this);
  }

  void WaitUntilNone() {
    absl::MutexLock lock(&mutex_, absl::Condition(
                                      +[](std::size_t* count) { return *count == 0; }, &count_));
  }

 private:
  struct Token {
    ActiveCalls* calls;
    explicit Token(ActiveCalls* of) : calls(of) {}
    ~Token() {
      absl::MutexLock lock(&calls->mutex_);
      --calls->count_;
    }
    Token(const Token&) = delete;
    Token& operator=(const Token&) = delete;
  };

  absl::Mutex mutex_;
  std::size_t count_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace kvist
