#include "cachestore/retention/lru_policy.h"

#include <algorithm>

namespace kvist {

// Invariant, between calls: a slot is in candidates_ exactly if its node is a candidate.

void LruPolicy::Insert(const BlockKey& key, const BlockPlace& place) {
  if (Contains(key)) return;
  const Slot slot = forest_.Add(key, place.parent, place.depth);
  newest_use_ = std::max(newest_use_ + (place.last_use == 0 ? 1 : 0), place.last_use);
  SetLastUse(slot, place.last_use > 0 ? place.last_use : newest_use_);
  AddCandidate(slot);
  if (const Slot parent = forest_.Parent(slot); parent != BlockForest::kNone) TakeCandidate(parent);
}

void LruPolicy::Touch(const BlockKey& key) {
  const Slot slot = forest_.Find(key);
  if (slot == BlockForest::kNone) return;
  TakeCandidate(slot);
  SetLastUse(slot, ++newest_use_);
  AddCandidate(slot);
}

void LruPolicy::Erase(const BlockKey& key) {
  const Slot slot = forest_.Find(key);
  if (slot == BlockForest::kNone) return;
  TakeCandidate(slot);
  if (const Slot parent = forest_.Remove(slot); parent != BlockForest::kNone) AddCandidate(parent);
}

void LruPolicy::Pin(const BlockKey& key) {
  const Slot slot = forest_.Find(key);
  if (slot == BlockForest::kNone) return;
  TakeCandidate(slot);
  forest_.Pin(slot);
}

void LruPolicy::Unpin(const BlockKey& key) {
  const Slot slot = forest_.Find(key);
  if (slot != BlockForest::kNone && forest_.Unpin(slot)) AddCandidate(slot);
}

std::optional<BlockKey> LruPolicy::Victim() {
  if (candidates_.empty()) return std::nullopt;
  return forest_[candidates_.begin()->second].key;
}

std::size_t LruPolicy::MemoryBytes() const {
  // A B-tree's nodes are between half full and full; three quarters stands for it.
  return forest_.MemoryBytes() + candidates_.size() * sizeof(*candidates_.begin()) * 4 / 3 + sizeof(*this);
}

}  // namespace kvist
