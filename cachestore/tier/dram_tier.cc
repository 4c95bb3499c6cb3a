#include "cachestore/tier/dram_tier.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "fmt/format.h"

namespace kvist {
namespace {

// Evicting this many records' worth without finding room for one means that room is scattered.
constexpr std::size_t kScatteredRecords = 2;

}  // namespace

absl::StatusOr<DramBlockRef> DramTier::Allocate(const NamespaceId& ns, const RecordShape& shape) {
  const std::size_t bytes = shape.record_bytes();
  std::span<std::byte> slot = arena_->Allocate(bytes);
  if (slot.empty()) {
    absl::MutexLock lock(&mutex_);
    std::size_t evicted = 0;
    while ((slot = arena_->Allocate(bytes)).empty()) {
      // Room for several records went and still there is none for one: it lies scattered among records of another
      // size. Evicting on would take most of them; emptying one region takes a few.
      if (evicted >= kScatteredRecords * bytes && EvictRegion(bytes)) {
        evicted = 0;
        continue;
      }
      const std::size_t freed = EvictOne();
      if (freed == 0) {
        return absl::ResourceExhaustedError(
            fmt::format("no room for a block of {} bytes in DRAM: the rest is leased or waits to be written", bytes));
      }
      evicted += freed;
    }
  }
  return std::make_shared<DramBlock>(arena_, slot, ns, shape);
}

std::size_t DramTier::EvictOne() {
  const std::optional<BlockKey> victim = policy_->Victim();
  if (!victim) return 0;
  ++counters_.evicted_blocks;
  return EraseLocked(*victim)->record_.size();
}

bool DramTier::EvictRegion(std::size_t record_bytes) {
  for (const DramArena::Region& region : arena_->Regions(record_bytes)) {
    std::vector<BlockKey> inside;
    bool free_to_go = true;
    for (const auto& [key, entry] : blocks_) {
      const std::byte* const at = entry.block->record_.data();
      if (at < region.memory.data() || at >= region.memory.data() + region.memory.size()) continue;
      inside.push_back(key);
      // An inner block may go too if it can be read again from below: its children stay reachable.
      free_to_go = free_to_go && entry.block->leases_ == 0 && !entry.held &&
                   (entry.state == BlockState::kBelow || !policy_->HasChildren(key));
    }
    // Slots that are not in the table are granted, or dropped while leased.
    if (!free_to_go || inside.empty() || inside.size() != region.used_slots) continue;
    for (const BlockKey& key : inside) EraseLocked(key);
    counters_.evicted_blocks += inside.size();
    return true;
  }
  return false;
}

absl::StatusOr<DramTier::Published> DramTier::Publish(DramBlockRef block, const BlockKey& key, const BlockKey& parent,
                                                      std::span<const TokenId> tokens, BlockState state,
                                                      absl::Time expires, std::optional<std::uint64_t> drop_epoch) {
  block->key_ = key;
  block->parent_ = parent;
  absl::MutexLock lock(&mutex_);
  if (drop_epoch && *drop_epoch != drop_epoch_) return Published{std::move(block), false};
  auto [it, inserted] = blocks_.try_emplace(key);
  Entry& entry = it->second;
  if (!inserted) {
    if (!RecordTokensEqual(entry.block->record(), tokens) || entry.ns != block->ns_) {
      ++counters_.corrupt_blocks;
      return absl::InternalError(fmt::format("block key {} is taken by other tokens: a hash collision", key.ToHex()));
    }
    entry.expires = std::max(entry.expires, expires);
    policy_->Touch(key);
    return Published{entry.block, false};
  }
  entry.block = std::move(block);
  entry.ns = entry.block->ns_;
  entry.expires = expires;
  entry.state = state;
  policy_->Insert(key, {.parent = parent,
                        .depth = parent == entry.ns ? 0 : policy_->forest().DepthBelow(parent),
                        .tokens = entry.block->shape_.block_tokens,
                        .bytes = static_cast<std::uint32_t>(entry.block->record_.size())});
  if (entry.block->leases_ > 0) policy_->Pin(key);
  UpdateHold(key, entry);
  ++counters_.blocks;
  counters_.payload_bytes += entry.block->shape_.payload_bytes();
  return Published{entry.block, true};
}

std::uint64_t DramTier::drop_epoch() const {
  absl::MutexLock lock(&mutex_);
  return drop_epoch_;
}

DramBlockRef DramTier::Find(const BlockKey& key) const {
  absl::MutexLock lock(&mutex_);
  const auto it = blocks_.find(key);
  return it == blocks_.end() ? nullptr : it->second.block;
}

bool DramTier::Expired(const BlockKey& key, const Entry& entry, absl::Time now) const {
  return entry.expires <= now && !pins_.contains(key);
}

Presence DramTier::LookupLocked(const NamespaceId& ns, const BlockKey& key, absl::Time now) const {
  const auto it = blocks_.find(key);
  if (it == blocks_.end() || it->second.ns != ns) return Presence::kAbsent;
  return Expired(key, it->second, now) ? Presence::kExpired : Presence::kPresent;
}

Presence DramTier::Lookup(const NamespaceId& ns, const BlockKey& key, absl::Time now) const {
  absl::MutexLock lock(&mutex_);
  return LookupLocked(ns, key, now);
}

void DramTier::Lookup(const NamespaceId& ns, std::span<const BlockKey> keys, absl::Time now,
                      std::span<Presence> presence) const {
  absl::MutexLock lock(&mutex_);
  for (const BlockKey& key : keys) blocks_.prefetch(key);
  for (std::size_t i = 0; i < keys.size(); ++i) presence[i] = LookupLocked(ns, keys[i], now);
}

std::vector<DramBlockRef> DramTier::Lease(const NamespaceId& ns, std::span<const BlockKey> keys,
                                          std::span<const TokenId> tokens, absl::Time now) {
  std::vector<DramBlockRef> leased;
  if (keys.empty()) return leased;
  leased.reserve(keys.size());
  const std::size_t block_tokens = tokens.size() / keys.size();
  absl::MutexLock lock(&mutex_);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const auto it = blocks_.find(keys[i]);
    if (it == blocks_.end()) {
      leased.push_back(nullptr);
      continue;
    }
    const Entry& entry = it->second;
    if (Expired(keys[i], entry, now)) break;
    if (entry.ns != ns || !RecordTokensEqual(entry.block->record(), tokens.subspan(i * block_tokens, block_tokens))) {
      ++counters_.corrupt_blocks;
      break;
    }
    LeaseLocked(*entry.block);
    leased.push_back(entry.block);
  }
  return leased;
}

void DramTier::Lease(const DramBlockRef& block) {
  absl::MutexLock lock(&mutex_);
  LeaseLocked(*block);
}

bool DramTier::IsResident(const DramBlock& block) const {
  const auto it = blocks_.find(block.key_);
  return it != blocks_.end() && it->second.block.get() == &block;
}

void DramTier::LeaseLocked(DramBlock& block) {
  if (block.leases_++ > 0) return;
  ++counters_.leased_blocks;
  if (IsResident(block)) policy_->Pin(block.key_);
}

void DramTier::Release(std::span<const DramBlockRef> blocks) {
  absl::MutexLock lock(&mutex_);
  for (const DramBlockRef& block : blocks) {
    if (block == nullptr) continue;
    assert(block->leases_ > 0);
    if (--block->leases_ > 0) continue;
    --counters_.leased_blocks;
    if (IsResident(*block)) policy_->Unpin(block->key_);
  }
}

void DramTier::Touch(std::span<const BlockKey> chain, absl::Time expires) {
  absl::MutexLock lock(&mutex_);
  for (auto key = chain.rbegin(); key != chain.rend(); ++key) {
    const auto it = blocks_.find(*key);
    if (it == blocks_.end()) continue;
    it->second.expires = expires;
    policy_->Touch(*key);
  }
}

absl::Time DramTier::Expiry(const BlockKey& key) const {
  absl::MutexLock lock(&mutex_);
  const auto it = blocks_.find(key);
  return it == blocks_.end() ? absl::InfinitePast() : it->second.expires;
}

void DramTier::UpdateHold(const BlockKey& key, Entry& entry) {
  const bool hold =
      entry.state == BlockState::kWriting || (entry.state == BlockState::kDramOnly && pins_.contains(key));
  if (hold == entry.held) return;
  entry.held = hold;
  hold ? policy_->Pin(key) : policy_->Unpin(key);
}

void DramTier::SetState(const DramBlock& block, BlockState state) {
  absl::MutexLock lock(&mutex_);
  if (!IsResident(block)) return;
  Entry& entry = blocks_.find(block.key_)->second;
  entry.state = state;
  UpdateHold(block.key_, entry);
}

void DramTier::SetPins(const BlockKey& key, std::uint32_t pins) {
  absl::MutexLock lock(&mutex_);
  if (pins > 0) {
    pins_[key] = pins;
  } else {
    pins_.erase(key);
  }
  if (const auto it = blocks_.find(key); it != blocks_.end()) UpdateHold(key, it->second);
}

std::uint32_t DramTier::Pins(const BlockKey& key) const {
  absl::MutexLock lock(&mutex_);
  const auto it = pins_.find(key);
  return it == pins_.end() ? 0 : it->second;
}

DramBlockRef DramTier::EraseLocked(const BlockKey& key) {
  const auto it = blocks_.find(key);
  DramBlockRef block = std::move(it->second.block);
  blocks_.erase(it);
  policy_->Erase(key);
  --counters_.blocks;
  counters_.payload_bytes -= block->shape_.payload_bytes();
  return block;
}

std::vector<DramBlockRef> DramTier::Drop(const std::function<bool(const NamespaceId&)>& matches) {
  std::vector<DramBlockRef> dropped;
  absl::MutexLock lock(&mutex_);
  ++drop_epoch_;
  std::vector<BlockKey> keys;
  for (const auto& [key, entry] : blocks_) {
    if (matches(entry.ns)) keys.push_back(key);
  }
  dropped.reserve(keys.size());
  for (const BlockKey& key : keys) {
    pins_.erase(key);
    dropped.push_back(EraseLocked(key));
  }
  return dropped;
}

std::vector<BlockKey> DramTier::Expire(absl::Time now) {
  absl::MutexLock lock(&mutex_);
  std::vector<BlockKey> due;
  for (const auto& [key, entry] : blocks_) {
    if (Expired(key, entry, now)) due.push_back(key);
  }
  // From each expired leaf upwards, as far as ancestors are expired and have become leaves.
  std::vector<BlockKey> expired;
  for (BlockKey key : due) {
    auto it = blocks_.find(key);
    while (it != blocks_.end() && Expired(key, it->second, now) && !policy_->HasChildren(key)) {
      const BlockKey parent = it->second.block->parent_;
      EraseLocked(key);
      expired.push_back(key);
      key = parent;
      it = blocks_.find(key);
    }
  }
  return expired;
}

void DramTier::ForEach(const std::function<void(const DramBlock&)>& visit) const {
  absl::MutexLock lock(&mutex_);
  for (const auto& [key, entry] : blocks_) visit(*entry.block);
}

DramTier::Counters DramTier::counters() const {
  absl::MutexLock lock(&mutex_);
  return counters_;
}

void DramTier::CountCorrupt() {
  absl::MutexLock lock(&mutex_);
  ++counters_.corrupt_blocks;
}

}  // namespace kvist
