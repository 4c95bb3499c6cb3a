#include "cachestore/io/clock.h"

#include <chrono>

namespace kvist {

absl::Time SystemClock::Wall() const { return absl::Now(); }

absl::Duration SystemClock::Monotonic() const {
  return absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
}

}  // namespace kvist
