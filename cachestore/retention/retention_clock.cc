#include "cachestore/retention/retention_clock.h"

#include <algorithm>
#include <string>

#include "absl/time/clock.h"
#include "spdlog/spdlog.h"

namespace kvist {
namespace {

std::string Show(absl::Time time) { return absl::FormatTime(time, absl::UTCTimeZone()); }

}  // namespace

RetentionClock::RetentionClock(absl::Time wall, absl::Duration monotonic, absl::Time newest_known)
    : now_(wall), last_(monotonic) {
  if (newest_known == absl::InfinitePast()) return;
  if (wall < newest_known - kTolerance) {
    spdlog::warn("the clock ({}) is behind the store's newest use ({}): expiry goes on from there", Show(wall),
                 Show(newest_known));
    now_ = newest_known;
  } else if (wall > newest_known + kPauseMax) {
    spdlog::warn("the clock ({}) is far ahead of the store's newest use ({}): nothing expires by it for {}", Show(wall),
                 Show(newest_known), absl::FormatDuration(kConfirmAfter));
    now_ = newest_known;
    leap_seen_ = monotonic;
  }
}

absl::Time RetentionClock::Advance(absl::Time wall, absl::Duration monotonic) {
  const absl::Time expected = now_ + std::max(monotonic - last_, absl::ZeroDuration());
  last_ = std::max(last_, monotonic);
  const absl::Duration ahead = wall - expected;
  if (ahead > kTolerance) {
    if (!leap_seen_) {
      spdlog::warn("the clock leapt ahead by {}, to {}: not followed for {}", absl::FormatDuration(ahead), Show(wall),
                   absl::FormatDuration(kConfirmAfter));
      leap_seen_ = monotonic;
    }
    if (monotonic - *leap_seen_ < kConfirmAfter) return now_ = expected;
    spdlog::info("the clock's leap is confirmed: expiry follows it from {} to {}", Show(expected), Show(wall));
    leap_seen_.reset();
    return now_ = wall;
  }
  leap_seen_.reset();
  // Slightly off: follow the wall clock, never backwards. Far behind: it went back, so elapsed time is what counts.
  return now_ = ahead >= -kTolerance ? std::max(now_, wall) : expected;
}

}  // namespace kvist
