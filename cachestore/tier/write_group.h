// Records on their way to the device together: placed and submitted by NvmeWriter, then synced, indexed and
// acknowledged by NvmeCommitter. Private to the tier. A group belongs to the writer's thread until it is handed over,
// then to the committer's; `writing` is the committer's lock's.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "cachestore/io/async_io.h"
#include "cachestore/tier/nvme_tier.h"
#include "cachestore/tier/segment_space.h"

namespace kvist {

struct WriteItem {
  NvmeBlock block;
  std::uint64_t sequence = 0;
  std::span<std::byte> record;
  std::vector<DoneStatus> done;         // [0]: the writer's; the rest: duplicates that came meanwhile
  bool flush = false;                   // not a write: a point to flush at
  std::atomic<bool> cancelled = false;  // set by who holds core.index_mutex
  // Once placed:
  ExtentStamp extent;
  Segment* segment = nullptr;
  absl::Status status;
};

struct WriteGroup {
  // Records that lie side by side, in memory as on the device, go in one transfer.
  struct Transfer {
    IoRequest io;
    std::size_t first = 0;  // of `items`
    std::size_t count = 0;
  };
  std::vector<std::unique_ptr<WriteItem>> items;
  std::deque<Transfer> transfers;  // which don't move
  std::size_t writing = 0;         // transfers not ended
};

}  // namespace kvist
