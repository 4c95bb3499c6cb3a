// RetentionClock: the time that expiry goes by. Wall time, because it must mean the same after a restart, but guarded
// against a wall clock that jumps: it never goes back, and does not follow a leap that elapsed time doesn't explain
// until the wall clock has stood by it for a while.
//
//   wall clock goes back      -> time goes on at the monotonic clock's pace: nothing lives longer
//   leaps ahead, running      -> (set by hand, or a resume) not followed for kConfirmAfter: nothing dies at once
//   leaps ahead at a restart  -> a pause is likely, so followed; beyond kPauseMax a broken clock is likelier, so as
//   above
//
// Pure logic: whoever calls it reads the clocks. Not thread-safe.
#pragma once

#include <optional>

#include "absl/time/time.h"

namespace kvist {

class RetentionClock {
 public:
  // Differences that slewing and scheduling explain.
  static constexpr absl::Duration kTolerance = absl::Seconds(5);
  // The longest pause between two runs that is believed.
  static constexpr absl::Duration kPauseMax = absl::Hours(24 * 30);
  // Monotonic time that a leap has to stand. Long enough for time synchronisation to correct a bad start.
  static constexpr absl::Duration kConfirmAfter = absl::Hours(1);

  // `newest_known`: the latest time that the store's content vouches for; InfinitePast if it is empty.
  RetentionClock(absl::Time wall, absl::Duration monotonic, absl::Time newest_known);

  // The time now. Calls must come in order of `monotonic`.
  absl::Time Advance(absl::Time wall, absl::Duration monotonic);

  // Whether the wall clock is ahead and not believed yet.
  bool doubtful() const { return leap_seen_.has_value(); }

 private:
  absl::Time now_;
  absl::Duration last_;                      // monotonic, of the last call
  std::optional<absl::Duration> leap_seen_;  // monotonic, since when the wall clock is ahead beyond belief
};

}  // namespace kvist
