#include "cachestore/retention/block_forest.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <utility>

namespace kvist {
namespace {

// As many fetches as are on their way at once, and a little more.
constexpr std::size_t kFindAtOnce = 64;

}  // namespace

BlockForest::BlockForest(std::size_t expected_blocks) : tables_(kTables) {
  const std::size_t entries = expected_blocks * 100 / kLoadMaxPercent / kTables;
  if (entries < kTableEntriesMin) return;
  // Tables are not filled quite evenly.
  for (Table& table : tables_) table.slots.assign(entries + entries / 16 + 1, kNone);
}

void BlockForest::FindAll(std::span<const BlockKey> keys, std::span<Slot> slots) const {
  struct Place {
    const Table* table;
    std::size_t home;
  };
  std::array<Place, kFindAtOnce> places;
  for (; !keys.empty(); keys = keys.subspan(std::min(keys.size(), kFindAtOnce))) {
    const std::size_t count = std::min(keys.size(), kFindAtOnce);
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint64_t hash = MixedHash(keys[i]);
      const Table& table = TableOf(hash);
      places[i] = {&table, Home(table, hash)};
      if (!table.slots.empty()) __builtin_prefetch(&table.slots[places[i].home]);
    }
    for (std::size_t i = 0; i < count; ++i) {
      const auto& [table, home] = places[i];
      const Slot slot = table->slots.empty() ? kNone : table->slots[home];
      if (slot != kNone) __builtin_prefetch(&(*this)[slot]);
    }
    for (std::size_t i = 0; i < count; ++i) {
      const auto& [table, home] = places[i];
      slots[i] = table->slots.empty() ? kNone : Resident(table->slots[Probe(*table, home, keys[i])]);
    }
    slots = slots.subspan(count);
  }
}

BlockForest::Slot BlockForest::Add(const BlockKey& key, const BlockKey& parent, std::uint32_t depth) {
  const Slot slot = FindOrMake(key);
  const Slot above = FindOrMake(parent);
  Node& node = (*this)[slot];
  assert(!node.resident);
  node.parent = above;
  node.resident = true;
  node.owner_flag = 0;
  node.owner = {};
  node.policy = {};
  node.policy_bits = 0;
  node.depth = static_cast<std::uint16_t>(std::min(depth, kDepthUnknown));
  ++(*this)[above].children;
  ++resident_;
  return slot;
}

BlockForest::Slot BlockForest::Remove(Slot slot) {
  Node& node = (*this)[slot];
  const Slot above = node.parent;
  node.resident = false;
  if (node.pinned) pins_.erase(slot);
  node.pinned = 0;
  --resident_;
  if (node.children == 0) Free(slot);
  Node& parent = (*this)[above];
  --parent.children;
  if (parent.resident) return above;
  if (parent.children == 0) Free(above);
  return kNone;
}

bool BlockForest::Pin(Slot slot) {
  (*this)[slot].pinned = 1;
  return ++pins_[slot] == 1;
}

bool BlockForest::Unpin(Slot slot) {
  const auto it = pins_.find(slot);
  if (it == pins_.end() || --it->second > 0) return false;
  pins_.erase(it);
  (*this)[slot].pinned = 0;
  return true;
}

BlockForest::Slot BlockForest::FindOrMake(const BlockKey& key) {
  Table& table = TableOf(MixedHash(key));
  if ((table.used + 1) * 100 > table.slots.size() * kLoadMaxPercent) {
    Grow(table, std::max(kTableEntriesMin, table.slots.size() + table.slots.size() / 2));
  }
  const std::size_t at = Probe(table, key);
  if (table.slots[at] != kNone) return table.slots[at];
  const Slot slot = Allocate();
  table.slots[at] = slot;
  ++table.used;
  Node& node = (*this)[slot];
  node = Node{};
  node.key = key;
  return slot;
}

BlockForest::Slot BlockForest::Allocate() {
  if (free_ == kNone) {
    const Slot first = slots_end();
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

void BlockForest::Free(Slot slot) {
  // Closes the gap in the probe sequence: every entry that may move towards its home does.
  Table& table = TableOf(MixedHash((*this)[slot].key));
  const std::size_t size = table.slots.size();
  const auto distance = [size](std::size_t from, std::size_t to) { return to >= from ? to - from : to + size - from; };
  std::size_t gap = Probe(table, (*this)[slot].key);
  for (std::size_t at = Next(table, gap); table.slots[at] != kNone; at = Next(table, at)) {
    const std::size_t home = Home(table, MixedHash((*this)[table.slots[at]].key));
    if (distance(home, at) >= distance(gap, at)) {
      table.slots[gap] = table.slots[at];
      gap = at;
    }
  }
  table.slots[gap] = kNone;
  --table.used;
  (*this)[slot].parent = free_;
  free_ = slot;
}

void BlockForest::Grow(Table& table, std::size_t entries) {
  const std::vector<Slot> old = std::exchange(table.slots, std::vector<Slot>(entries, kNone));
  for (const Slot slot : old) {
    if (slot != kNone) table.slots[Probe(table, (*this)[slot].key)] = slot;
  }
}

std::size_t BlockForest::MemoryBytes() const {
  std::size_t bytes = chunks_.size() * (kChunkNodes * sizeof(Node) + sizeof(chunks_[0])) + kTables * sizeof(Table);
  for (const Table& table : tables_) bytes += table.slots.capacity() * sizeof(Slot);
  return bytes + pins_.capacity() * (sizeof(decltype(pins_)::value_type) + 1);
}

}  // namespace kvist
