// Promotion: brings blocks from NVMe to DRAM. However many ask for the same cold block, it is read once.
// Thread safety: any thread. The NVMe tier must outlive it.
#pragma once

#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "cachestore/prefix_store.h"
#include "cachestore/tier/dram_tier.h"
#include "cachestore/tier/nvme_tier.h"

namespace kvist {

class Promotion {
 public:
  Promotion(std::shared_ptr<DramTier> dram, NvmeTier* nvme) : dram_(std::move(dram)), nvme_(nvme) {}

  // Yields the block in DRAM with its record verified (its token ids are the caller's to compare: RecordTokensEqual);
  // lease it at once. NotFound, DataLoss: as NvmeTier::Read. ResourceExhausted: DRAM has no room.
  void Fetch(const NamespaceId& ns, const BlockKey& key, const RecordShape& shape, absl::Time expires,
             Done<DramBlockRef> done);

 private:
  using Waiters = std::vector<Done<DramBlockRef>>;

  absl::StatusOr<DramBlockRef> OnRead(DramBlockRef block, const BlockKey& key, absl::Time expires, std::uint64_t epoch,
                                      const absl::Status& status);

  const std::shared_ptr<DramTier> dram_;
  NvmeTier* const nvme_;
  absl::Mutex mutex_;
  absl::flat_hash_map<BlockKey, Waiters> reads_ ABSL_GUARDED_BY(mutex_);  // under way
};

}  // namespace kvist
