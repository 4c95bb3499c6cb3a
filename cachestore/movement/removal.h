// Removal: dropping namespaces from all tiers, so that a write-back or a promotion under way can't bring them back.
// Other stores' own copies of what is in the shared tier are theirs. Thread safety: any thread. What it is given must
// outlive it.
#pragma once

#include <memory>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "cachestore/movement/shared_reader.h"
#include "cachestore/movement/shared_write_back.h"
#include "cachestore/movement/worker.h"
#include "cachestore/movement/write_back.h"
#include "cachestore/prefix_store.h"
#include "cachestore/tier/dram_tier.h"
#include "cachestore/tier/nvme_tier.h"

namespace kvist {

class Removal {
 public:
  struct Shared {  // all null without a shared tier
    ObjectTier* tier = nullptr;
    SharedReader* reader = nullptr;
    SharedWriteBack* write_back = nullptr;
  };

  Removal(std::shared_ptr<DramTier> dram, NvmeTier* nvme, WriteBack* write_back, Worker* worker, const Shared& shared)
      : dram_(std::move(dram)), nvme_(nvme), write_back_(write_back), worker_(worker), shared_(shared) {}

  // Gone from DRAM when this returns, from everywhere and durably when `done` runs. Unavailable: gone here, but the
  // shared tier did not do its part.
  void Drop(std::vector<NamespaceId> namespaces, Done<DropResult> done);

 private:
  using Set = absl::flat_hash_set<NamespaceId>;
  void DropHere(const std::shared_ptr<const Set>& set, Done<DropResult> done);
  // Where nothing of them is read or written meanwhile.
  void DropShared(std::vector<NamespaceId> namespaces, DoneStatus done);
  absl::StatusOr<DropResult> DropBelow(const Set& namespaces, const std::vector<DramBlockRef>& dropped);

  const std::shared_ptr<DramTier> dram_;
  NvmeTier* const nvme_;
  WriteBack* const write_back_;
  Worker* const worker_;
  const Shared shared_;
};

}  // namespace kvist
