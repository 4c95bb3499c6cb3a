// Removal: dropping namespaces from all tiers, so that a write-back or a promotion under way can't bring them back.
// Thread safety: any thread. What it is given must outlive it.
#pragma once

#include <memory>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "cachestore/movement/worker.h"
#include "cachestore/movement/write_back.h"
#include "cachestore/prefix_store.h"
#include "cachestore/tier/dram_tier.h"
#include "cachestore/tier/nvme_tier.h"

namespace kvist {

class Removal {
 public:
  Removal(std::shared_ptr<DramTier> dram, NvmeTier* nvme, WriteBack* write_back, Worker* worker)
      : dram_(std::move(dram)), nvme_(nvme), write_back_(write_back), worker_(worker) {}

  // Gone from DRAM when this returns, from everywhere and durably when `done` runs.
  void Drop(std::vector<NamespaceId> namespaces, Done<DropResult> done);

 private:
  using Set = absl::flat_hash_set<NamespaceId>;
  absl::StatusOr<DropResult> DropBelow(const Set& namespaces, const std::vector<DramBlockRef>& dropped);

  const std::shared_ptr<DramTier> dram_;
  NvmeTier* const nvme_;
  WriteBack* const write_back_;
  Worker* const worker_;
};

}  // namespace kvist
