// Whether somebody waits for reads of a device: the engine that serves those says so, the engine of background
// transfers keeps little in flight meanwhile. A device works off what it was given; a read that comes behind 32 MiB of
// queued writes waits for all of them.
// Thread safety: any thread; takes no lock.
#pragma once

#include <atomic>
#include <cstdint>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace kvist {

class ForegroundReads {
 public:
  void Begin() { under_way_.fetch_add(1, std::memory_order_relaxed); }
  void End() {
    last_ns_.store(absl::GetCurrentTimeNanos(), std::memory_order_relaxed);
    under_way_.fetch_sub(1, std::memory_order_relaxed);
  }

  // One is under way, or ended so lately that the next is likely to come.
  bool Likely() const {
    if (under_way_.load(std::memory_order_relaxed) > 0) return true;
    return absl::GetCurrentTimeNanos() - last_ns_.load(std::memory_order_relaxed) < absl::ToInt64Nanoseconds(kLinger);
  }

 private:
  // Longer than a reader takes to ask for the next block of a chain.
  static constexpr absl::Duration kLinger = absl::Milliseconds(2);

  std::atomic<std::int64_t> under_way_ = 0;
  std::atomic<std::int64_t> last_ns_ = 0;
};

}  // namespace kvist
