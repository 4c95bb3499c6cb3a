#include "cachestore/retention/prefix_lru.h"

#include <cassert>

namespace kvist {

// Invariants: a node is in candidates_ exactly when IsCandidate(node); node.children counts the present nodes whose
// parent is that node, and orphans_[p] those whose parent p is absent.

void PrefixLru::Insert(const BlockKey& key, const BlockKey& parent) {
  const auto [it, inserted] = nodes_.try_emplace(key);
  if (!inserted) return;
  Node& node = it->second;
  node.parent = parent;
  node.used = next_use_++;
  if (const auto waiting = orphans_.find(key); waiting != orphans_.end()) {
    node.children = waiting->second;
    orphans_.erase(waiting);
  }
  if (IsCandidate(node)) candidates_.emplace(node.used, key);

  if (const auto above = nodes_.find(parent); above != nodes_.end()) {
    if (IsCandidate(above->second)) candidates_.erase(above->second.used);
    ++above->second.children;
  } else {
    ++orphans_[parent];
  }
}

void PrefixLru::Touch(const BlockKey& key) {
  const auto it = nodes_.find(key);
  if (it == nodes_.end()) return;
  Node& node = it->second;
  if (IsCandidate(node)) {
    candidates_.erase(node.used);
    candidates_.emplace(next_use_, key);
  }
  node.used = next_use_++;
}

void PrefixLru::Erase(const BlockKey& key) {
  const auto it = nodes_.find(key);
  if (it == nodes_.end()) return;
  const Node node = it->second;
  if (IsCandidate(node)) candidates_.erase(node.used);
  nodes_.erase(it);
  if (node.children > 0) orphans_[key] = node.children;

  if (const auto above = nodes_.find(node.parent); above != nodes_.end()) {
    assert(above->second.children > 0);
    --above->second.children;
    if (IsCandidate(above->second)) candidates_.emplace(above->second.used, node.parent);
  } else if (const auto waiting = orphans_.find(node.parent); waiting != orphans_.end()) {
    if (--waiting->second == 0) orphans_.erase(waiting);
  }
}

void PrefixLru::Pin(const BlockKey& key) {
  const auto it = nodes_.find(key);
  if (it == nodes_.end()) return;
  if (IsCandidate(it->second)) candidates_.erase(it->second.used);
  ++it->second.pins;
}

void PrefixLru::Unpin(const BlockKey& key) {
  const auto it = nodes_.find(key);
  if (it == nodes_.end() || it->second.pins == 0) return;
  if (--it->second.pins == 0 && IsCandidate(it->second)) candidates_.emplace(it->second.used, key);
}

bool PrefixLru::HasChildren(const BlockKey& key) const {
  const auto it = nodes_.find(key);
  return it != nodes_.end() && it->second.children > 0;
}

std::optional<BlockKey> PrefixLru::Victim() const {
  if (candidates_.empty()) return std::nullopt;
  return candidates_.begin()->second;
}

}  // namespace kvist
