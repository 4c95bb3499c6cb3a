// LruPolicy: prefix-aware LRU. Among the blocks that may leave, the least recently used one goes. The yardstick for the
// other policies.
// Not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "absl/container/btree_set.h"
#include "cachestore/retention/block_forest.h"
#include "cachestore/retention/eviction_policy.h"

namespace kvist {

class LruPolicy final : public EvictionPolicy {
 public:
  explicit LruPolicy(std::size_t expected_blocks) : forest_(expected_blocks) {}

  void Insert(const BlockKey& key, const BlockPlace& place) override;
  void Touch(const BlockKey& key) override;
  void Erase(const BlockKey& key) override;
  void Pin(const BlockKey& key) override;
  void Unpin(const BlockKey& key) override;
  std::optional<BlockKey> Victim() override;
  bool Contains(const BlockKey& key) const override { return forest_.Find(key) != Forest::kNone; }
  bool HasChildren(const BlockKey& key) const override;
  std::size_t size() const override { return forest_.resident(); }
  std::size_t MemoryBytes() const override;

 private:
  struct Extra {
    std::uint64_t used = 0;  // number of its last use
  };
  using Forest = BlockForest<Extra>;
  using Slot = Forest::Slot;

  void AddCandidate(Slot slot) {
    if (Forest::IsCandidate(forest_[slot])) candidates_.emplace(forest_[slot].extra.used, slot);
  }
  void TakeCandidate(Slot slot) { candidates_.erase({forest_[slot].extra.used, slot}); }

  Forest forest_;
  absl::btree_set<std::pair<std::uint64_t, Slot>> candidates_;  // oldest first
  std::uint64_t next_use_ = 1;
};

}  // namespace kvist
