#include "cachestore/index/resident_summary.h"

#include <algorithm>
#include <limits>

namespace kvist {

void ResidentSummary::Load(std::vector<Item> items) {
  std::sort(items.begin(), items.end(), [](const Item& a, const Item& b) { return a.second.used < b.second.used; });
  entries_.reserve(items.size());
  for (const auto& [key, entry] : items) Insert(key, entry);
  if (!items.empty()) next_use_ = items.back().second.used + 1;
}

std::uint64_t ResidentSummary::PayloadBytes(const BlockEntry& entry) const {
  const auto it = payload_bytes_.find(entry.ns);
  return it == payload_bytes_.end() ? entry.record_bytes : it->second;
}

bool ResidentSummary::Insert(const BlockKey& key, const BlockEntry& entry) {
  if (!entries_.emplace(key, entry).second) return false;
  lru_.Insert(key, entry.parent);
  if (entry.pins > 0) lru_.Pin(key);
  total_payload_bytes_ += PayloadBytes(entry);
  earliest_expiry_ = std::min(earliest_expiry_, entry.expires_unix_s);
  return true;
}

const BlockEntry* ResidentSummary::Find(const BlockKey& key) const {
  const auto it = entries_.find(key);
  return it == entries_.end() ? nullptr : &it->second;
}

std::optional<BlockEntry> ResidentSummary::Erase(const BlockKey& key) {
  const auto it = entries_.find(key);
  if (it == entries_.end()) return std::nullopt;
  const BlockEntry entry = it->second;
  entries_.erase(it);
  dirty_.erase(key);
  lru_.Erase(key);
  total_payload_bytes_ -= std::min(total_payload_bytes_, PayloadBytes(entry));
  return entry;
}

bool ResidentSummary::Touch(const BlockKey& key, std::int64_t expires_unix_s) {
  const auto it = entries_.find(key);
  if (it == entries_.end()) return false;
  it->second.used = next_use_++;
  it->second.expires_unix_s = expires_unix_s;
  earliest_expiry_ = std::min(earliest_expiry_, expires_unix_s);
  lru_.Touch(key);
  dirty_.insert(key);
  return true;
}

bool ResidentSummary::SetPins(const BlockKey& key, std::uint32_t pins) {
  const auto it = entries_.find(key);
  if (it == entries_.end()) return false;
  if (it->second.pins == 0 && pins > 0) lru_.Pin(key);
  if (it->second.pins > 0 && pins == 0) lru_.Unpin(key);
  it->second.pins = pins;
  return true;
}

bool ResidentSummary::Relocate(const BlockKey& key, const ExtentStamp& extent) {
  const auto it = entries_.find(key);
  if (it == entries_.end()) return false;
  it->second.extent = extent;
  return true;
}

std::vector<BlockKey> ResidentSummary::Expired(std::int64_t now_unix_s) {
  if (now_unix_s <= earliest_expiry_) return {};
  // children[p]: resident children of p that are not themselves going.
  absl::flat_hash_map<BlockKey, std::uint32_t> staying;
  absl::flat_hash_set<BlockKey> due;
  std::int64_t earliest = std::numeric_limits<std::int64_t>::max();
  for (const auto& [key, entry] : entries_) {
    earliest = std::min(earliest, entry.expires_unix_s);
    if (entry.expires_unix_s < now_unix_s && entry.pins == 0) due.insert(key);
    ++staying[entry.parent];
  }
  earliest_expiry_ = earliest;
  std::vector<BlockKey> going;
  std::vector<BlockKey> ready;
  for (const BlockKey& key : due) {
    if (!staying.contains(key)) ready.push_back(key);
  }
  while (!ready.empty()) {
    const BlockKey key = ready.back();
    ready.pop_back();
    going.push_back(key);
    const BlockKey& parent = entries_.find(key)->second.parent;
    if (--staying[parent] == 0 && due.contains(parent)) ready.push_back(parent);
  }
  return going;
}

std::vector<ResidentSummary::Item> ResidentSummary::TakeDirty(std::size_t limit) {
  std::vector<Item> items;
  items.reserve(std::min(limit, dirty_.size()));
  while (items.size() < limit && !dirty_.empty()) {
    const auto it = dirty_.begin();
    items.emplace_back(*it, entries_.find(*it)->second);
    dirty_.erase(it);
  }
  return items;
}

void ResidentSummary::MarkDirty(const std::vector<Item>& items) {
  for (const auto& [key, entry] : items) {
    if (entries_.contains(key)) dirty_.insert(key);
  }
}

std::vector<BlockKey> ResidentSummary::KeysOf(const NamespaceId& ns) const {
  std::vector<BlockKey> keys;
  for (const auto& [key, entry] : entries_) {
    if (entry.ns == ns) keys.push_back(key);
  }
  return keys;
}

std::vector<BlockKey> ResidentSummary::Subtree(const BlockKey& key) const {
  absl::flat_hash_map<BlockKey, std::vector<BlockKey>> children;
  if (lru_.HasChildren(key)) {
    for (const auto& [child, entry] : entries_) children[entry.parent].push_back(child);
  }
  std::vector<BlockKey> order;
  if (entries_.contains(key)) order.push_back(key);
  for (std::size_t i = 0; i < order.size(); ++i) {
    const auto it = children.find(order[i]);
    if (it != children.end()) order.insert(order.end(), it->second.begin(), it->second.end());
  }
  std::reverse(order.begin(), order.end());
  return order;
}

}  // namespace kvist
