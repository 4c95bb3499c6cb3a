#include "cachestore/index/resident_summary.h"

#include <algorithm>
#include <array>
#include <limits>

namespace kvist {
namespace {

constexpr auto kNone = BlockForest::kNone;
constexpr std::size_t kLookupAtOnce = 64;

// Seconds since 1970 in 32 bits: until 2106.
std::uint32_t PackSeconds(std::int64_t unix_s) {
  return static_cast<std::uint32_t>(std::clamp<std::int64_t>(unix_s, 0, std::numeric_limits<std::uint32_t>::max()));
}

}  // namespace

void ResidentSummary::SetNamespace(const NamespaceId& ns, std::uint64_t payload_bytes, std::uint32_t block_tokens) {
  known_[ns] = {payload_bytes, block_tokens};
  for (Kind& kind : kinds_) {
    if (kind.ns != ns) continue;
    total_payload_bytes_ += kind.blocks * payload_bytes;
    total_payload_bytes_ -= kind.blocks * kind.payload_bytes;
    kind.payload_bytes = payload_bytes;
    kind.block_tokens = block_tokens;
  }
}

std::uint64_t ResidentSummary::PayloadBytes(const BlockEntry& entry) const {
  const auto it = known_.find(entry.ns);
  return it == known_.end() ? entry.record_bytes : it->second.payload_bytes;
}

std::uint32_t ResidentSummary::KindOf(const BlockEntry& entry) {
  const auto [it, added] =
      kind_of_.try_emplace({entry.ns, entry.record_bytes}, static_cast<std::uint32_t>(kinds_.size()));
  if (added) {
    Kind kind{.ns = entry.ns, .record_bytes = entry.record_bytes, .payload_bytes = entry.record_bytes};
    if (const auto known = known_.find(entry.ns); known != known_.end()) {
      kind.payload_bytes = known->second.payload_bytes;
      kind.block_tokens = known->second.block_tokens;
    }
    kinds_.push_back(kind);
  }
  return it->second;
}

std::optional<ResidentSummary::Slot> ResidentSummary::Add(const BlockKey& key, const BlockEntry& entry,
                                                          std::uint64_t last_use) {
  if (policy_->Contains(key)) return std::nullopt;
  const std::uint32_t kind_number = KindOf(entry);
  Kind& kind = kinds_[kind_number];
  policy_->Insert(key, {.parent = entry.parent,
                        .depth = entry.parent == entry.ns ? 0 : policy_->forest().DepthBelow(entry.parent),
                        .tokens = kind.block_tokens,
                        .bytes = static_cast<std::uint32_t>(entry.record_bytes),
                        .last_use = last_use});
  const Slot slot = SlotOf(key);
  policy_->owner(slot) = {kind_number, PackSeconds(entry.expires_unix_s), pages_.Pack(entry.extent)};
  if (entry.pins > 0) {
    pins_[key] = entry.pins;
    policy_->Pin(key);
  }
  ++kind.blocks;
  total_payload_bytes_ += kind.payload_bytes;
  earliest_expiry_ = std::min(earliest_expiry_, entry.expires_unix_s);
  return slot;
}

BlockEntry ResidentSummary::EntryOf(Slot slot) const {
  const BlockForest::Node& node = policy_->forest()[slot];
  const Kind& kind = kinds_[node.owner[kKind]];
  BlockEntry entry;
  entry.ns = kind.ns;
  entry.parent = policy_->forest().ParentKey(slot);
  entry.extent = pages_.Unpack(node.owner[kPage]);
  entry.record_bytes = kind.record_bytes;
  entry.expires_unix_s = node.owner[kExpires];
  entry.used = policy_->LastUse(slot);
  if (node.pinned) {
    if (const auto it = pins_.find(node.key); it != pins_.end()) entry.pins = it->second;
  }
  return entry;
}

std::optional<BlockEntry> ResidentSummary::Find(const BlockKey& key) const {
  const Slot slot = SlotOf(key);
  if (slot == kNone) return std::nullopt;
  return EntryOf(slot);
}

void ResidentSummary::Lookup(const NamespaceId& ns, std::span<const BlockKey> keys, std::int64_t now_unix_s,
                             std::span<Presence> presence) const {
  const BlockForest& forest = policy_->forest();
  std::array<Slot, kLookupAtOnce> slots;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const std::size_t at = i % kLookupAtOnce;
    if (at == 0) forest.FindAll(keys.subspan(i, std::min(keys.size() - i, kLookupAtOnce)), slots);
    const Slot slot = slots[at];
    presence[i] = Presence::kAbsent;
    if (slot == kNone || kinds_[forest[slot].owner[kKind]].ns != ns) continue;
    const bool expired = forest[slot].owner[kExpires] < now_unix_s && !pins_.contains(keys[i]);
    presence[i] = expired ? Presence::kExpired : Presence::kPresent;
  }
}

std::optional<ResidentSummary::Item> ResidentSummary::At(Slot slot) const {
  if (slot >= slots_end() || !policy_->forest().IsResident(slot)) return std::nullopt;
  return Item{policy_->forest()[slot].key, EntryOf(slot)};
}

std::optional<BlockEntry> ResidentSummary::Erase(const BlockKey& key) {
  const Slot slot = SlotOf(key);
  if (slot == kNone) return std::nullopt;
  const BlockEntry entry = EntryOf(slot);
  Kind& kind = kinds_[policy_->forest()[slot].owner[kKind]];
  --kind.blocks;
  total_payload_bytes_ -= kind.payload_bytes;
  pins_.erase(key);
  policy_->Erase(key);
  return entry;
}

bool ResidentSummary::Touch(const BlockKey& key, std::int64_t expires_unix_s) {
  const Slot slot = SlotOf(key);
  if (slot == kNone) return false;
  policy_->Touch(key);
  policy_->owner(slot)[kExpires] = PackSeconds(expires_unix_s);
  earliest_expiry_ = std::min(earliest_expiry_, expires_unix_s);
  SetDirty(slot);
  return true;
}

bool ResidentSummary::SetPins(const BlockKey& key, std::uint32_t pins) {
  const Slot slot = SlotOf(key);
  if (slot == kNone) return false;
  const auto it = pins_.find(key);
  const bool before = it != pins_.end();
  if (!before && pins > 0) policy_->Pin(key);
  if (before && pins == 0) {
    policy_->Unpin(key);
    LowerEarliestExpiry(policy_->forest()[slot].owner[kExpires]);  // passes leave pinned ones out
  }
  if (pins > 0) {
    pins_[key] = pins;
  } else if (before) {
    pins_.erase(it);
  }
  return true;
}

std::optional<ResidentSummary::Slot> ResidentSummary::Relocate(const BlockKey& key, const ExtentStamp& extent) {
  const Slot slot = SlotOf(key);
  if (slot == kNone) return std::nullopt;
  policy_->owner(slot)[kPage] = pages_.Pack(extent);
  return slot;
}

bool ResidentSummary::IsExpiredLeaf(const BlockKey& key, std::int64_t now_unix_s) const {
  const Slot slot = SlotOf(key);
  if (slot == kNone) return false;
  const BlockForest::Node& node = policy_->forest()[slot];
  return node.owner[kExpires] < now_unix_s && BlockForest::IsCandidate(node);
}

void ResidentSummary::SetDirty(Slot slot) {
  if (policy_->forest()[slot].owner_flag) return;
  policy_->SetOwnerFlag(slot, true);
  dirty_.push_back(slot);
}

std::vector<ResidentSummary::Item> ResidentSummary::TakeDirty(std::size_t limit) {
  std::vector<Item> items;
  while (items.size() < limit && !dirty_.empty()) {
    const Slot slot = dirty_.back();
    dirty_.pop_back();
    if (!policy_->forest().IsResident(slot) || !policy_->forest()[slot].owner_flag) continue;
    policy_->SetOwnerFlag(slot, false);
    items.emplace_back(policy_->forest()[slot].key, EntryOf(slot));
  }
  return items;
}

void ResidentSummary::MarkDirty(const std::vector<Item>& items) {
  for (const auto& [key, entry] : items) {
    if (const Slot slot = SlotOf(key); slot != kNone) SetDirty(slot);
  }
}

std::vector<BlockKey> ResidentSummary::KeysOf(const NamespaceId& ns) const {
  std::vector<BlockKey> keys;
  const BlockForest& forest = policy_->forest();
  for (Slot slot = 0; slot < slots_end(); ++slot) {
    if (forest.IsResident(slot) && kinds_[forest[slot].owner[kKind]].ns == ns) keys.push_back(forest[slot].key);
  }
  return keys;
}

std::vector<BlockKey> ResidentSummary::Subtree(const BlockKey& key) const {
  const BlockForest& forest = policy_->forest();
  absl::flat_hash_map<Slot, std::vector<Slot>> children;
  if (policy_->HasChildren(key)) {
    for (Slot slot = 0; slot < slots_end(); ++slot) {
      if (forest.IsResident(slot)) children[forest[slot].parent].push_back(slot);
    }
  }
  std::vector<Slot> order;
  if (const Slot top = SlotOf(key); top != kNone) order.push_back(top);
  for (std::size_t i = 0; i < order.size(); ++i) {
    const auto it = children.find(order[i]);
    if (it != children.end()) order.insert(order.end(), it->second.begin(), it->second.end());
  }
  std::vector<BlockKey> keys;
  for (auto slot = order.rbegin(); slot != order.rend(); ++slot) keys.push_back(forest[*slot].key);
  return keys;
}

std::size_t ResidentSummary::MemoryBytes() const {
  return policy_->MemoryBytes() + dirty_.capacity() * sizeof(Slot) + kinds_.capacity() * sizeof(Kind) + sizeof(*this);
}

}  // namespace kvist
