// Prefix-aware LRU: which block leaves a tier next. Only a block without resident children may go (a child without
// its parent is unreachable), and among those the least recently used; pinned blocks never.
// Pure logic, no clock and no I/O: order of use is the order of calls. The trace simulator drives this same code.
// Not thread-safe: the owner's lock guards it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "cachestore/key/digest.h"

namespace kvist {

class PrefixLru {
 public:
  // Adds a block as the most recently used. `parent` need not be present. No-op if present.
  void Insert(const BlockKey& key, const BlockKey& parent);
  // Makes it the most recently used. To keep parents younger than children, touch a chain from its tail to its head.
  void Touch(const BlockKey& key);
  void Erase(const BlockKey& key);
  // Pins nest; a pinned block is never a victim.
  void Pin(const BlockKey& key);
  void Unpin(const BlockKey& key);

  bool Contains(const BlockKey& key) const { return nodes_.contains(key); }
  bool HasChildren(const BlockKey& key) const;
  std::optional<BlockKey> Victim() const;  // nullopt: all pinned, or empty
  std::size_t size() const { return nodes_.size(); }

 private:
  struct Node {
    BlockKey parent;
    std::uint64_t used = 0;      // sequence number of the last use
    std::uint32_t children = 0;  // resident ones
    std::uint32_t pins = 0;
  };
  bool IsCandidate(const Node& node) const { return node.children == 0 && node.pins == 0; }

  absl::flat_hash_map<BlockKey, Node> nodes_;
  absl::flat_hash_map<BlockKey, std::uint32_t> orphans_;  // children present whose parent is not: count by parent
  absl::btree_map<std::uint64_t, BlockKey> candidates_;   // by last use, oldest first
  std::uint64_t next_use_ = 1;
};

}  // namespace kvist
