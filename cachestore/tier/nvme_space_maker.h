// Makes room on the device: opens and creates segments, evicts least recently used leaves, rewrites the survivors of
// segments that are mostly dead (log-structured cleaning).
// Private to the tier. Used by one thread at a time: the writer's, or the opening one before it starts. PrepareSegment
// may be called by another meanwhile.
#pragma once

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cachestore/tier/nvme_core.h"

namespace kvist {

class NvmeSpaceMaker {
 public:
  explicit NvmeSpaceMaker(NvmeCore* core) : core_(*core) {}

  // Returns when the open segment has room for a record of this size. ResourceExhausted: everything left is pinned,
  // or the disk is full. `drain` returns when no record is uncommitted; called before anything is evicted or cleaned.
  absl::Status EnsureRoom(std::uint64_t record_bytes, const std::function<void()>& drain);

  // Creates a segment if the open one will soon be full and one more may be created: creating one takes milliseconds.
  void PrepareSegment();

  // Evicts, cleans and deletes files until they fit the capacity. For opening with a smaller one.
  absl::Status Shrink();

 private:
  // Segments that can be opened: to reuse, or to create within the capacity.
  std::size_t Takable() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_.mutex);
  // Live bytes beyond what leaves cleaning cheap.
  std::uint64_t LiveExcess() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_.mutex);

  // Opens a segment; leaves `reserve` of the takable ones untaken. NotFound: there is none to take.
  absl::Status OpenSegment(std::size_t reserve);
  absl::Status ReuseSegment() ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_.index_mutex);
  absl::Status OpenNewSegment() ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_.index_mutex);
  absl::StatusOr<Segment*> CreateSegment() ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_.index_mutex);
  absl::Status DeleteSegment(std::uint64_t id);

  // Frees at least one segment, or makes room in the open one.
  absl::Status Reclaim(std::uint64_t record_bytes);
  // Removes leaves until `bytes` of records are gone. ResourceExhausted if not a single one could go.
  absl::Status Evict(std::uint64_t bytes);
  // Removes what lives in `victim`, with its descendants, as far as it is not pinned.
  absl::Status DropSegment(Segment* victim);
  absl::Status ShrinkStep(std::size_t& cleanings_left, bool& done);

  NvmeCore& core_;
};

}  // namespace kvist
