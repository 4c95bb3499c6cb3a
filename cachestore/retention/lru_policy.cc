#include "cachestore/retention/lru_policy.h"

namespace kvist {

// Invariant, between calls: a slot is in candidates_ exactly if its node is a candidate.

void LruPolicy::Insert(const BlockKey& key, const BlockPlace& place) {
  if (Contains(key)) return;
  const Slot slot = forest_.Add(key, place.parent);
  forest_[slot].extra.used = next_use_++;
  AddCandidate(slot);
  if (const Slot parent = forest_.Parent(slot); parent != Forest::kNone) TakeCandidate(parent);
}

void LruPolicy::Touch(const BlockKey& key) {
  const Slot slot = forest_.Find(key);
  if (slot == Forest::kNone) return;
  TakeCandidate(slot);
  forest_[slot].extra.used = next_use_++;
  AddCandidate(slot);
}

void LruPolicy::Erase(const BlockKey& key) {
  const Slot slot = forest_.Find(key);
  if (slot == Forest::kNone) return;
  TakeCandidate(slot);
  if (const Slot parent = forest_.Remove(slot); parent != Forest::kNone) AddCandidate(parent);
}

void LruPolicy::Pin(const BlockKey& key) {
  const Slot slot = forest_.Find(key);
  if (slot == Forest::kNone) return;
  TakeCandidate(slot);
  ++forest_[slot].pins;
}

void LruPolicy::Unpin(const BlockKey& key) {
  const Slot slot = forest_.Find(key);
  if (slot == Forest::kNone || forest_[slot].pins == 0) return;
  --forest_[slot].pins;
  AddCandidate(slot);
}

std::optional<BlockKey> LruPolicy::Victim() {
  if (candidates_.empty()) return std::nullopt;
  return forest_[candidates_.begin()->second].key;
}

bool LruPolicy::HasChildren(const BlockKey& key) const {
  const Slot slot = forest_.Find(key);
  return slot != Forest::kNone && forest_[slot].children > 0;
}

std::size_t LruPolicy::MemoryBytes() const {
  // A B-tree's nodes are between half full and full; three quarters stands for it.
  return forest_.MemoryBytes() + candidates_.size() * sizeof(*candidates_.begin()) * 4 / 3 + sizeof(*this);
}

}  // namespace kvist
