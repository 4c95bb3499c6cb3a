// EvictionPolicy: which block leaves a tier next. One interface for the tiers and for the trace simulator, which drives
// this same code (tools/analytics). What they all keep to:
// - only a block without resident children may leave: a child without its parent is unreachable;
// - a pinned block never leaves;
// - a policy decides, its owner does: Victim() removes nothing, Erase() does.
//
// Order of calls is the only time there is: no clock, no I/O, no hidden randomness (the same calls give the same
// victims). On a hit, touch the chain from its tail to its head, so that a parent is younger than its children.
// Not thread-safe: the owner's lock guards it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "cachestore/key/digest.h"
#include "cachestore/retention/block_forest.h"

namespace kvist {

// What a policy may weigh when a block arrives.
struct BlockPlace {
  BlockKey parent;           // need not be present
  std::uint32_t depth = 0;   // blocks before it in its chain; 0: the chain's first; BlockForest::kDepthUnknown
  std::uint32_t tokens = 1;  // in this block
  std::uint32_t bytes = 1;   // that it takes in this tier
  // For a block of an earlier life of the store: when it was last used, as LastUse said then (and it sets the
  // policy's time forward, if later than any other). 0: just now.
  std::uint64_t last_use = 0;
};

class EvictionPolicy {
 public:
  using Slot = BlockForest::Slot;

  explicit EvictionPolicy(std::size_t expected_blocks) : forest_(expected_blocks) {}
  virtual ~EvictionPolicy() = default;

  // Adds a block. No-op if present.
  virtual void Insert(const BlockKey& key, const BlockPlace& place) = 0;
  // Says that it was used again. No-op if absent, as are all the following.
  virtual void Touch(const BlockKey& key) = 0;
  // It left: evicted, expired or dropped.
  virtual void Erase(const BlockKey& key) = 0;
  // Pins nest.
  virtual void Pin(const BlockKey& key) = 0;
  virtual void Unpin(const BlockKey& key) = 0;

  // The block to evict next; nullopt if none may be: all are pinned (or have children that are), or it is empty.
  virtual std::optional<BlockKey> Victim() = 0;

  // The policy's own time, so that order outlasts a restart: what is persisted with a block and comes back in its
  // BlockPlace. NewestUse: no block was used later.
  virtual std::uint64_t NewestUse() const = 0;
  virtual std::uint64_t LastUse(Slot slot) const = 0;

  bool Contains(const BlockKey& key) const { return forest_.Find(key) != BlockForest::kNone; }
  bool HasChildren(const BlockKey& key) const {
    const Slot slot = forest_.Find(key);
    return slot != BlockForest::kNone && forest_[slot].children > 0;
  }
  std::size_t size() const { return forest_.resident(); }

  // The table of blocks, and in it what the owner keeps with each (slots are good until the block leaves).
  const BlockForest& forest() const { return forest_; }
  std::array<std::uint32_t, 3>& owner(Slot slot) { return forest_[slot].owner; }
  void SetOwnerFlag(Slot slot, bool flag) { forest_[slot].owner_flag = flag ? 1 : 0; }

  // What it holds for its books, the table included: capacity, not only the part in use.
  virtual std::size_t MemoryBytes() const = 0;

 protected:
  BlockForest forest_;
};

enum class EvictionKind {
  kLru,         // prefix-aware LRU
  kS3Fifo,      // S3-FIFO (Yang et al., SOSP '23) with the prefix rule
  kReuseValue,  // expected reuse in tokens per byte and time, learnt while running: the default (docs/eviction.md)
  kReuseCost,   // the same, tokens weighing by what recomputing them costs: later ones in a prompt more
};

inline constexpr EvictionKind kDefaultEviction = EvictionKind::kReuseValue;

std::string_view EvictionKindName(EvictionKind kind);  // "lru", "s3-fifo", "reuse-value", "reuse-cost"
std::optional<EvictionKind> EvictionKindFromName(std::string_view name);

// `expected_blocks`: about how many will be resident. A hint: tables are sized for it at once, instead of growing.
std::unique_ptr<EvictionPolicy> MakeEvictionPolicy(EvictionKind kind, std::size_t expected_blocks = 0);

}  // namespace kvist
