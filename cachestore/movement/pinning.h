// Pinning: pin counts of resident chains, durable where the block is. Changes are made one call at a time, on the
// worker.
// Thread safety: any thread. What it is given must outlive it.
#pragma once

#include <memory>
#include <vector>

#include "cachestore/movement/worker.h"
#include "cachestore/movement/write_back.h"
#include "cachestore/prefix_store.h"
#include "cachestore/tier/dram_tier.h"
#include "cachestore/tier/nvme_tier.h"

namespace kvist {

class Pinning {
 public:
  // Takes over the counts that NVMe holds.
  Pinning(std::shared_ptr<DramTier> dram, NvmeTier* nvme, WriteBack* write_back, Worker* worker);

  // Adds a pin to each block of a chain, as far as it is resident; yields how far. What is in DRAM only is written
  // first; what can't be written is pinned in DRAM, until restart.
  void Pin(std::vector<BlockKey> chain, Done<std::size_t> done);
  // Takes one pin from each; blocks without pins count as reached.
  void Unpin(std::vector<BlockKey> chain, Done<std::size_t> done);

 private:
  enum class Change { kAdd, kRemove };
  absl::StatusOr<std::size_t> Apply(const std::vector<BlockKey>& chain, Change change);

  const std::shared_ptr<DramTier> dram_;
  NvmeTier* const nvme_;
  WriteBack* const write_back_;
  Worker* const worker_;
};

}  // namespace kvist
