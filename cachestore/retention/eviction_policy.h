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

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "cachestore/key/digest.h"

namespace kvist {

// What a policy may weigh when a block arrives.
struct BlockPlace {
  BlockKey parent;           // need not be present
  std::uint32_t depth = 0;   // blocks before it in its chain; 0: the chain's first
  std::uint32_t tokens = 1;  // in this block
  std::uint32_t bytes = 1;   // that it takes in this tier
};

class EvictionPolicy {
 public:
  virtual ~EvictionPolicy() = default;

  // Adds a block, as just used. No-op if present.
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

  virtual bool Contains(const BlockKey& key) const = 0;
  virtual bool HasChildren(const BlockKey& key) const = 0;
  virtual std::size_t size() const = 0;
  // What it holds for its own books: capacity of its tables, not only the part in use.
  virtual std::size_t MemoryBytes() const = 0;
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
