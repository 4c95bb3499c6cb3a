// Promotion: brings blocks from NVMe, or else from the shared tier, to DRAM. However many ask for the same cold block,
// it is read once. Thread safety: any thread. What it is given must outlive it.
#pragma once

#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "cachestore/movement/shared_reader.h"
#include "cachestore/prefix_store.h"
#include "cachestore/tier/dram_tier.h"
#include "cachestore/tier/nvme_tier.h"

namespace kvist {

class Promotion {
 public:
  struct Fetched {
    DramBlockRef block;
    Tier from = Tier::kNvme;
  };
  struct Wanted {
    NamespaceId ns;
    BlockKey key;
    RecordShape shape;
    absl::Time expires;
    absl::Duration shared_time;  // what the chain has left for the shared tier
  };

  // `shared`: null without a shared tier.
  Promotion(std::shared_ptr<DramTier> dram, NvmeTier* nvme, SharedReader* shared)
      : dram_(std::move(dram)), nvme_(nvme), shared_(shared) {}

  // Yields the block in DRAM with its record verified (its parent and its token ids are the caller's to compare); lease
  // it at once. Errors as NvmeTier::Read and ObjectTier::Get. ResourceExhausted: DRAM has no room.
  void Fetch(const Wanted& wanted, Done<Fetched> done);

 private:
  using Waiters = std::vector<Done<Fetched>>;

  void ReadNvme(const Wanted& wanted, DramBlockRef block, std::uint64_t epoch);
  void ReadShared(const Wanted& wanted, DramBlockRef block, std::uint64_t epoch);
  void Finish(const Wanted& wanted, DramBlockRef block, Tier from, std::uint64_t epoch, const absl::Status& status);
  absl::StatusOr<DramBlockRef> OnRead(DramBlockRef block, const Wanted& wanted, std::uint64_t epoch,
                                      const absl::Status& status);

  const std::shared_ptr<DramTier> dram_;
  NvmeTier* const nvme_;
  SharedReader* const shared_;
  absl::Mutex mutex_;
  absl::flat_hash_map<BlockKey, Waiters> reads_ ABSL_GUARDED_BY(mutex_);  // under way
};

}  // namespace kvist
