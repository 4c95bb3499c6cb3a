// What the parts of the NVMe tier share: the state, its locks and the index discipline. Private to the tier.
//
// Locks, in this order: index_mutex, then mutex.
//   mutex        guards the summary and the accounting of space; held briefly, never over I/O.
//   index_mutex  held from deciding on an index batch to having applied its consequences to the summary, I/O included:
//                the order of batches on disk is the order of changes in memory.
//
// A removed block leaves the summary at once and joins `deletes`. Only when its index delete is durable is its space
// given back (FlushDeletes, or any batch that carries the deletes along).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "cachestore/index/block_index.h"
#include "cachestore/index/resident_summary.h"
#include "cachestore/io/async_io.h"
#include "cachestore/io/data_file.h"
#include "cachestore/tier/nvme_tier.h"
#include "cachestore/tier/removal_log.h"
#include "cachestore/tier/segment_space.h"
#include "cachestore/tier/store_directory.h"

namespace kvist {

// Fewer segments than this leave too little room beside the one being written and the one kept for cleaning.
inline constexpr std::uint64_t kSegmentsMin = 8;

struct NvmeCore {
  struct Removed {
    BlockKey key;
    ExtentStamp extent;
    std::uint64_t record_bytes = 0;
  };
  struct Counters {
    std::uint64_t evicted_blocks = 0;
    std::uint64_t expired_blocks = 0;
    std::uint64_t corrupt_blocks = 0;
    std::uint64_t device_errors = 0;
    std::uint64_t bytes_written = 0;
    std::uint64_t bytes_accepted = 0;
  };

  explicit NvmeCore(const NvmeTierOptions& o) : options(o), summary(o.eviction) {}

  // Takes a block out of the summary; its delete is pending from now on. Payload bytes freed, 0 if it was not there.
  std::uint64_t Remove(const BlockKey& key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  // As Remove, if the entry still is this extent. For a block found to be bad.
  bool RemoveExtent(const BlockKey& key, const ExtentStamp& extent) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);

  // Applies `batch` together with all pending deletes and floors, synced, and gives the space back. On failure those
  // stay pending.
  absl::Status ApplyWithDeletes(IndexBatch batch) ABSL_EXCLUSIVE_LOCKS_REQUIRED(index_mutex) ABSL_LOCKS_EXCLUDED(mutex);
  // Records that these places hold nothing that counts any more; for survivors, which leave without a delete.
  void Forget(std::span<const Removed> places) ABSL_EXCLUSIVE_LOCKS_REQUIRED(index_mutex);
  absl::Status CompactRemovals() ABSL_EXCLUSIVE_LOCKS_REQUIRED(index_mutex) ABSL_LOCKS_EXCLUDED(mutex);
  // Nothing to do while blocks are loaded: they stay pending.
  absl::Status FlushDeletes() ABSL_LOCKS_EXCLUDED(index_mutex, mutex);

  // Drops a block whose bytes could not be read or verified, logs and counts it. True if it was still that extent.
  bool DropBad(const BlockKey& key, const ExtentStamp& extent, const absl::Status& why) ABSL_LOCKS_EXCLUDED(mutex);

  // fdatasync. After a failure the segment takes no more records: what was written to it since the last success is
  // unknown, and a later success would prove nothing: it isn't tried. Not for use on an I/O thread.
  absl::Status SyncSegment(Segment* segment) ABSL_LOCKS_EXCLUDED(mutex);
  bool HasFailed(const Segment* segment) const ABSL_LOCKS_EXCLUDED(mutex);

  // The effective sizes: at least kSegmentsMin segments, so that there is room to clean in.
  std::uint64_t segment_bytes = 0;
  std::size_t segments_max = 0;

  const NvmeTierOptions options;
  std::unique_ptr<FileSystem> own_file_system;  // when the options name none
  FileSystem* fs = nullptr;
  StoreDirectory directory;
  bool after_crash = false;  // the store was not closed before this opening, or never open
  std::unique_ptr<DataFiles> files;
  KeyHasher::Secret secret{};
  std::unique_ptr<BlockIndex> index;
  // Reads have rings of their own: a burst of writes must not stand before them in the queue.
  std::unique_ptr<AsyncIo> read_io;
  std::unique_ptr<AsyncIo> write_io;

  absl::Mutex index_mutex ABSL_ACQUIRED_BEFORE(mutex);
  std::unique_ptr<RemovalLog> removals ABSL_GUARDED_BY(index_mutex);  // null until blocks are being loaded
  mutable absl::Mutex mutex;
  ResidentSummary summary ABSL_GUARDED_BY(mutex);
  SegmentSpace space ABSL_GUARDED_BY(mutex);
  std::vector<Removed> deletes ABSL_GUARDED_BY(mutex);
  // While blocks are still loaded (block_loader.h): the summary may lack some that the index has, but for those gone.
  bool loading ABSL_GUARDED_BY(mutex) = true;
  absl::flat_hash_set<BlockKey> gone ABSL_GUARDED_BY(mutex);
  // Namespaces whose drop the index does not know yet.
  std::vector<NamespaceId> floors ABSL_GUARDED_BY(mutex);
  Counters counters ABSL_GUARDED_BY(mutex);
  absl::flat_hash_map<NamespaceId, NamespaceEntry> namespaces ABSL_GUARDED_BY(mutex);

  // Loading has ended. If not well, nothing may be written: what is free is not known.
  absl::Notification loaded;
  absl::Status load_status;  // set before
};

// For a segment file new to the index: never one that an earlier life of the same segment number had, even if the
// index was lost meanwhile.
std::uint64_t FirstSegmentGeneration();

// Everything that makes these bytes this block: header, place and generation, key, namespace, size, every layer.
// DataLoss names the fault.
absl::Status VerifyRecord(std::span<const std::byte> record, const BlockKey& key, const BlockEntry& entry);

// Page-aligned memory for transfers.
class AlignedBuffer {
 public:
  explicit AlignedBuffer(std::size_t bytes);
  std::span<std::byte> bytes() const { return bytes_; }

 private:
  struct Free {
    void operator()(std::byte* memory) const;
  };
  std::unique_ptr<std::byte, Free> memory_;
  std::span<std::byte> bytes_;
};

}  // namespace kvist
