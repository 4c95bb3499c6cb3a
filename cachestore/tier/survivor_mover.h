// Cleaning: reads what still lives in a segment, verifies it, appends it elsewhere and points the index there. The same
// order as for new blocks: data, fdatasync, index; only then is the old place given back.
// Private to the tier. Used by one thread at a time, as NvmeSpaceMaker.
#pragma once

#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "cachestore/tier/nvme_core.h"

namespace kvist {

class SurvivorMover {
 public:
  // `open_segment` opens another segment to append to, the reserve included.
  SurvivorMover(NvmeCore* core, std::function<absl::Status()> open_segment)
      : core_(*core), open_segment_(std::move(open_segment)) {}

  // After an error what was not moved is where it was, and readable.
  absl::Status Clean(Segment* victim);

 private:
  struct Survivor {
    BlockKey key;
    BlockEntry entry;
    Segment* from = nullptr;
    ExtentStamp to;
    Segment* into = nullptr;  // set once placed
    std::span<std::byte> record;
    IoRequest io;
    bool good = false;
  };

  std::vector<Survivor> Collect(Segment* victim) const;
  absl::Status Move(std::vector<Survivor>& survivors);
  void Read(std::vector<Survivor>& survivors);
  absl::Status Place(std::vector<Survivor>& survivors);
  absl::Status Write(std::vector<Survivor>& survivors);
  absl::Status Commit(const std::vector<Survivor>& survivors);

  NvmeCore& core_;
  const std::function<absl::Status()> open_segment_;
};

}  // namespace kvist
