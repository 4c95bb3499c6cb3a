// BlockForest: the books every compact eviction policy keeps: which blocks are resident, each one's parent, how many
// resident children it has, and its pins. The policy's own data per block is `Extra`.
// Nodes live in fixed chunks (no move when it grows, no doubling of memory) and refer to each other by 32-bit slots; an
// open-addressing table of slots finds them by key. At most 2^32 - 1 blocks.
//
// A parent that is absent while children of it are present (its chain came in another order, or its namespace's root)
// is a node too, with resident == false; it goes with its last child.
// Not thread-safe.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "cachestore/key/digest.h"

namespace kvist {

// Keys are digests already; mixed once more because tests and other hashers' keys need not be.
inline std::uint64_t MixedHash(const BlockKey& key) {
  std::uint64_t x = (key.lo ^ (key.hi * 0x9E3779B97F4A7C15ull)) + 0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

template <typename Extra>
class BlockForest {
 public:
  using Slot = std::uint32_t;
  static constexpr Slot kNone = ~Slot{0};

  struct Node {
    BlockKey key;
    Slot parent = kNone;         // of a free node: the next free one
    std::uint32_t children = 0;  // resident ones
    std::uint32_t pins : 31 = 0;
    std::uint32_t resident : 1 = 0;
    Extra extra;
  };

  explicit BlockForest(std::size_t expected_blocks) {
    std::size_t entries = kTableEntriesMin;
    while (entries * kLoadMaxPercent / 100 < expected_blocks) entries *= 2;
    table_.assign(entries, kNone);
  }

  Node& operator[](Slot slot) { return chunks_[slot / kChunkNodes][slot % kChunkNodes]; }
  const Node& operator[](Slot slot) const { return chunks_[slot / kChunkNodes][slot % kChunkNodes]; }
  static bool IsCandidate(const Node& node) { return node.children == 0 && node.pins == 0; }

  // The resident block's slot, or kNone.
  Slot Find(const BlockKey& key) const {
    const Slot slot = table_[Probe(key)];
    return slot != kNone && (*this)[slot].resident ? slot : kNone;
  }

  // Adds an absent block; returns its slot. The parent's count of children is one more afterwards.
  Slot Add(const BlockKey& key, const BlockKey& parent) {
    const Slot slot = FindOrMake(key);
    const Slot above = FindOrMake(parent);
    Node& node = (*this)[slot];
    assert(!node.resident);
    node.parent = above;
    node.extra = Extra{};
    node.resident = true;
    ++(*this)[above].children;
    ++resident_;
    return slot;
  }

  // The resident parent, or kNone.
  Slot Parent(Slot slot) const {
    const Slot above = (*this)[slot].parent;
    return above != kNone && (*this)[above].resident ? above : kNone;
  }

  // Takes a resident block away; returns its resident parent, or kNone.
  Slot Remove(Slot slot) {
    Node& node = (*this)[slot];
    const Slot above = node.parent;
    node.resident = false;
    node.pins = 0;
    --resident_;
    if (node.children == 0) Free(slot);
    Node& parent = (*this)[above];
    --parent.children;
    if (parent.resident) return above;
    if (parent.children == 0) Free(above);
    return kNone;
  }

  std::size_t resident() const { return resident_; }
  std::size_t MemoryBytes() const {
    return chunks_.size() * (kChunkNodes * sizeof(Node) + sizeof(chunks_[0])) + table_.capacity() * sizeof(Slot);
  }

 private:
  static constexpr std::size_t kChunkNodes = 1024;
  static constexpr std::size_t kTableEntriesMin = 64;
  // Linear probing: about four probes for an absent key at this load, and less than 11 bytes per block after doubling.
  static constexpr std::size_t kLoadMaxPercent = 75;

  std::size_t Home(const BlockKey& key) const { return MixedHash(key) & (table_.size() - 1); }

  // Where the key is in the table, or the empty entry where it belongs.
  std::size_t Probe(const BlockKey& key) const {
    std::size_t at = Home(key);
    while (table_[at] != kNone && (*this)[table_[at]].key != key) at = (at + 1) & (table_.size() - 1);
    return at;
  }

  Slot FindOrMake(const BlockKey& key) {
    if ((used_ + 1) * 100 > table_.size() * kLoadMaxPercent) Rehash(table_.size() * 2);
    const std::size_t at = Probe(key);
    if (table_[at] != kNone) return table_[at];
    const Slot slot = Allocate();
    table_[at] = slot;
    ++used_;
    Node& node = (*this)[slot];
    node = Node{};
    node.key = key;
    return slot;
  }

  Slot Allocate() {
    if (free_ == kNone) {
      const Slot first = static_cast<Slot>(chunks_.size() * kChunkNodes);
      chunks_.push_back(std::make_unique<Node[]>(kChunkNodes));
      for (std::size_t i = kChunkNodes; i-- > 0;) {
        chunks_.back()[i].parent = free_;
        free_ = first + static_cast<Slot>(i);
      }
    }
    const Slot slot = free_;
    free_ = (*this)[slot].parent;
    return slot;
  }

  void Free(Slot slot) {
    // Closes the gap in the probe sequence: every entry that may move towards its home does.
    std::size_t gap = Probe((*this)[slot].key);
    const std::size_t mask = table_.size() - 1;
    for (std::size_t at = (gap + 1) & mask; table_[at] != kNone; at = (at + 1) & mask) {
      const std::size_t from_home = (at - Home((*this)[table_[at]].key)) & mask;
      if (from_home >= ((at - gap) & mask)) {
        table_[gap] = table_[at];
        gap = at;
      }
    }
    table_[gap] = kNone;
    --used_;
    (*this)[slot].parent = free_;
    free_ = slot;
  }

  void Rehash(std::size_t entries) {
    const std::vector<Slot> old = std::exchange(table_, std::vector<Slot>(entries, kNone));
    for (const Slot slot : old) {
      if (slot != kNone) table_[Probe((*this)[slot].key)] = slot;
    }
  }

  std::vector<std::unique_ptr<Node[]>> chunks_;
  std::vector<Slot> table_;  // a power of two
  std::size_t used_ = 0;     // entries of table_ in use
  std::size_t resident_ = 0;
  Slot free_ = kNone;
};

}  // namespace kvist
