// FolderHealth: when to stop asking storage that does not answer, and when to try again (a circuit breaker). Answers of
// any kind, errors too, count as health: only silence is a fault here.
// Not thread-safe: the owner's lock guards it. Times are monotonic.
#pragma once

#include <algorithm>
#include <cstdint>

#include "absl/time/time.h"

namespace kvist {

class FolderHealth {
 public:
  struct Options {
    std::uint32_t timeouts_to_open = 3;             // in a row: one slow answer is nothing yet
    absl::Duration retry_first = absl::Seconds(1);  // then twice as long each time
    absl::Duration retry_most = absl::Seconds(30);  // how long a folder that is back may go unnoticed
  };

  explicit FolderHealth(const Options& options) : options_(options), retry_(options.retry_first) {}

  // Whether an operation may begin. While given up, one at a time may, as a trial, when it is time for it.
  bool Admit(absl::Duration now) {
    if (!open_) return true;
    if (trial_ || now < retry_at_) return false;
    return trial_ = true;
  }

  // An admitted operation was answered; true if storage had been given up.
  bool OnAnswer() {
    const bool was_open = open_;
    in_a_row_ = 0;
    open_ = trial_ = false;
    retry_ = options_.retry_first;
    return was_open;
  }

  // An admitted operation was not answered in time; true if storage is given up just now.
  bool OnTimeout(absl::Duration now) {
    ++in_a_row_;
    if (!open_ && in_a_row_ < options_.timeouts_to_open) return false;
    const bool news = !open_;
    // Those that were under way when it was given up time out one by one: no news.
    if (open_ && !trial_) return false;
    open_ = true;
    trial_ = false;
    retry_at_ = now + retry_;
    retry_ = std::min(2 * retry_, options_.retry_most);
    return news;
  }

  bool given_up() const { return open_; }

 private:
  const Options options_;
  std::uint32_t in_a_row_ = 0;
  bool open_ = false;
  bool trial_ = false;
  absl::Duration retry_;
  absl::Duration retry_at_;
};

}  // namespace kvist
