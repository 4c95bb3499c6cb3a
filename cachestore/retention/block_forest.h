// BlockForest: the books that every eviction policy keeps: which blocks are resident, each one's parent and depth, how
// many resident children it has, and its pins. Beside them each node has room for the policy and for its owner, so that
// a tier's whole table of blocks is this one: 48 bytes a block, and some 6 to find it by.
//
// Nodes live in fixed chunks (no move when it grows, no doubling of memory) and refer to each other by 32-bit slots;
// open-addressing tables of slots find them by key. The tables are many, by hash: each grows by itself, so that no call
// pays for rehashing all. At most 2^32 - 1 blocks.
//
// A parent that is absent while children of it are present (its chain came in another order, or its namespace's root)
// is a node too, with resident == false; it goes with its last child.
// Not thread-safe.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "cachestore/key/digest.h"

namespace kvist {

// Keys are digests already; mixed once more because tests and other hashers' keys need not be.
inline std::uint64_t MixedHash(const BlockKey& key) {
  std::uint64_t x = (key.lo ^ (key.hi * 0x9E3779B97F4A7C15ull)) + 0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

class BlockForest {
 public:
  using Slot = std::uint32_t;
  static constexpr Slot kNone = ~Slot{0};
  static constexpr std::uint32_t kDepthUnknown = 0xFFFF;  // or not below this

  struct Node {
    BlockKey key;
    Slot parent = kNone;              // of a free node: the next free one
    std::uint32_t children : 28 = 0;  // resident ones
    std::uint32_t resident : 1 = 0;
    std::uint32_t pinned : 1 = 0;              // has pins
    std::uint32_t owner_flag : 1 = 0;          // the owner's
    std::array<std::uint32_t, 3> owner = {};   // the owner's: policies do not look at it
    std::array<std::uint32_t, 2> policy = {};  // the policy's, as is
    std::uint16_t policy_bits = 0;             // this
    std::uint16_t depth = 0;                   // in its chain; saturates at kDepthUnknown
  };
  static_assert(sizeof(Node) == 48);

  explicit BlockForest(std::size_t expected_blocks);

  Node& operator[](Slot slot) { return chunks_[slot / kChunkNodes][slot % kChunkNodes]; }
  const Node& operator[](Slot slot) const { return chunks_[slot / kChunkNodes][slot % kChunkNodes]; }
  static bool IsCandidate(const Node& node) { return node.children == 0 && node.pinned == 0; }

  // The resident block's slot, or kNone.
  Slot Find(const BlockKey& key) const {
    const std::uint64_t hash = MixedHash(key);
    const Table& table = TableOf(hash);
    return table.slots.empty() ? kNone : Resident(table.slots[Probe(table, Home(table, hash), key)]);
  }
  // The same for many, in about the time that memory takes for one: its fetches overlap.
  void FindAll(std::span<const BlockKey> keys, std::span<Slot> slots) const;

  // Adds an absent block, with the room for policy and owner zeroed; returns its slot. The parent's count of children
  // is one more afterwards.
  Slot Add(const BlockKey& key, const BlockKey& parent, std::uint32_t depth);
  // Takes a resident block away; returns its resident parent, or kNone.
  Slot Remove(Slot slot);

  // The resident parent, or kNone.
  Slot Parent(Slot slot) const {
    const Slot above = (*this)[slot].parent;
    return above != kNone && (*this)[above].resident ? above : kNone;
  }
  // Of a resident block, whether or not its parent is resident.
  const BlockKey& ParentKey(Slot slot) const { return (*this)[(*this)[slot].parent].key; }

  // Of a child of this block; kDepthUnknown if it is not resident.
  std::uint32_t DepthBelow(const BlockKey& parent) const {
    const Slot above = Find(parent);
    return above == kNone ? kDepthUnknown : std::min((*this)[above].depth + std::uint32_t{1}, kDepthUnknown);
  }

  // Pins nest. Pin: whether it had none before. Unpin: whether it has none any more (false if it had none before).
  bool Pin(Slot slot);
  bool Unpin(Slot slot);

  // Slots in use are below this; those that are free or not resident among them are to be skipped.
  Slot slots_end() const { return static_cast<Slot>(chunks_.size() * kChunkNodes); }
  bool IsResident(Slot slot) const { return (*this)[slot].resident != 0; }

  std::size_t resident() const { return resident_; }
  std::size_t MemoryBytes() const;

 private:
  static constexpr std::size_t kChunkNodes = 1024;
  static constexpr std::size_t kTables = 256;
  static constexpr std::size_t kTableEntriesMin = 8;
  // Linear probing: about five probes for an absent key at this load. Growing by half leaves it above half.
  static constexpr std::size_t kLoadMaxPercent = 80;

  struct Table {
    std::vector<Slot> slots;
    std::size_t used = 0;
  };

  Table& TableOf(std::uint64_t hash) { return tables_[hash >> 56]; }
  const Table& TableOf(std::uint64_t hash) const { return tables_[hash >> 56]; }
  // Spreads the hash's middle bits over the table's entries; the upper ones chose the table.
  static std::size_t Home(const Table& table, std::uint64_t hash) {
    return static_cast<std::size_t>((hash >> 16 & 0xFFFFFFFFu) * table.slots.size() >> 32);
  }
  static std::size_t Next(const Table& table, std::size_t at) { return at + 1 == table.slots.size() ? 0 : at + 1; }
  // From the key's home on: where it is in the table, or the empty entry where it belongs. The table isn't empty.
  std::size_t Probe(const Table& table, std::size_t home, const BlockKey& key) const {
    std::size_t at = home;
    while (table.slots[at] != kNone && (*this)[table.slots[at]].key != key) at = Next(table, at);
    return at;
  }
  std::size_t Probe(const Table& table, const BlockKey& key) const {
    return Probe(table, Home(table, MixedHash(key)), key);
  }
  Slot Resident(Slot slot) const { return slot != kNone && (*this)[slot].resident ? slot : kNone; }

  Slot FindOrMake(const BlockKey& key);
  Slot Allocate();
  void Free(Slot slot);
  void Grow(Table& table, std::size_t entries);

  std::vector<std::unique_ptr<Node[]>> chunks_;
  std::vector<Table> tables_;
  absl::flat_hash_map<Slot, std::uint32_t> pins_;  // of those pinned: few at any time
  std::size_t resident_ = 0;
  Slot free_ = kNone;
};

}  // namespace kvist
