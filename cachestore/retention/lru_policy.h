// LruPolicy: prefix-aware LRU. Among the blocks that may leave, the least recently used one goes. The yardstick for the
// other policies.
// Not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "absl/container/btree_set.h"
#include "cachestore/retention/eviction_policy.h"

namespace kvist {

class LruPolicy final : public EvictionPolicy {
 public:
  using EvictionPolicy::EvictionPolicy;

  void Insert(const BlockKey& key, const BlockPlace& place) override;
  void Touch(const BlockKey& key) override;
  void Erase(const BlockKey& key) override;
  void Pin(const BlockKey& key) override;
  void Unpin(const BlockKey& key) override;
  std::optional<BlockKey> Victim() override;
  std::uint64_t NewestUse() const override { return newest_use_; }
  std::uint64_t LastUse(Slot slot) const override {
    const auto& [low, high] = forest_[slot].policy;
    return std::uint64_t{high} << 32 | low;
  }
  std::size_t MemoryBytes() const override;

 private:
  void SetLastUse(Slot slot, std::uint64_t use) {
    forest_[slot].policy = {static_cast<std::uint32_t>(use), static_cast<std::uint32_t>(use >> 32)};
  }
  void AddCandidate(Slot slot) {
    if (BlockForest::IsCandidate(forest_[slot])) candidates_.emplace(LastUse(slot), slot);
  }
  void TakeCandidate(Slot slot) { candidates_.erase({LastUse(slot), slot}); }

  absl::btree_set<std::pair<std::uint64_t, Slot>> candidates_;  // oldest first
  std::uint64_t newest_use_ = 0;
};

}  // namespace kvist
