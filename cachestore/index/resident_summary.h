// What is resident on the device, in memory: answers every lookup without I/O, holds the eviction order, and remembers
// which entries have changed since they were last written to the index.
//
// Its table of blocks is the eviction policy's (retention/block_forest.h): namespace, expiry and place of a block lie
// in the three words which that keeps for its owner. All in all below 64 bytes a block, whatever the policy. Not
// thread-safe: the owner's lock guards it (const methods may run concurrently).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "cachestore/index/extent_pages.h"
#include "cachestore/index/index_records.h"
#include "cachestore/retention/eviction_policy.h"
#include "cachestore/retention/presence.h"

namespace kvist {

class ResidentSummary {
 public:
  using Item = std::pair<BlockKey, BlockEntry>;
  using Slot = EvictionPolicy::Slot;

  explicit ResidentSummary(EvictionKind eviction = kDefaultEviction) : policy_(MakeEvictionPolicy(eviction)) {}

  // Before the first block: no segment is larger.
  void SetSegmentBytesMax(std::uint64_t bytes) { pages_.SetSegmentBytesMax(bytes); }
  // What each block of a namespace holds; unknown: its record's size, and one token.
  void SetNamespace(const NamespaceId& ns, std::uint64_t payload_bytes, std::uint32_t block_tokens);

  // Last use to write into the index for a block about to be inserted.
  std::uint64_t NextUse() const { return policy_->NewestUse() + 1; }

  // As the most recently used; Restore: as last used when its entry says. nullopt, and nothing changes, if present.
  // The slot names the block until it leaves; then it may be another's.
  std::optional<Slot> Insert(const BlockKey& key, const BlockEntry& entry) { return Add(key, entry, 0); }
  std::optional<Slot> Restore(const BlockKey& key, const BlockEntry& entry) { return Add(key, entry, entry.used); }
  bool Contains(const BlockKey& key) const { return policy_->Contains(key); }
  std::optional<BlockEntry> Find(const BlockKey& key) const;
  // Which of many are present in `ns` and don't expire before `now` (pinned ones never do). Faster than Find of each:
  // memory is fetched ahead.
  void Lookup(const NamespaceId& ns, std::span<const BlockKey> keys, std::int64_t now_unix_s,
              std::span<Presence> presence) const;
  // The block that has this slot now, if any.
  std::optional<Item> At(Slot slot) const;
  std::optional<BlockEntry> Erase(const BlockKey& key);

  // Most recently used from now on, and dirty. False if absent.
  bool Touch(const BlockKey& key, std::int64_t expires_unix_s);
  bool SetPins(const BlockKey& key, std::uint32_t pins);
  // Its slot, or nullopt if absent.
  std::optional<Slot> Relocate(const BlockKey& key, const ExtentStamp& extent);

  // The leaf that leaves next; nullopt: all that is left is pinned, or nothing is.
  std::optional<BlockKey> Victim() { return policy_->Victim(); }

  // A block whose expiry is before `now`, unpinned and without resident children.
  bool IsExpiredLeaf(const BlockKey& key, std::int64_t now_unix_s) const;
  // Whether any can be: cheap, and on the safe side.
  bool MayHaveExpired(std::int64_t now_unix_s) const { return earliest_expiry_ < now_unix_s; }
  // Around a pass over all blocks: set before it, lowered to what it found.
  void SetEarliestExpiry(std::int64_t unix_s) { earliest_expiry_ = unix_s; }
  void LowerEarliestExpiry(std::int64_t unix_s) { earliest_expiry_ = std::min(earliest_expiry_, unix_s); }

  // Up to `limit` entries touched since they were last taken, as they are now.
  std::vector<Item> TakeDirty(std::size_t limit);
  // Gives keys back after a failed write.
  void MarkDirty(const std::vector<Item>& items);

  // All blocks have slots below this: At() for each walks them all, in pieces if need be.
  Slot slots_end() const { return policy_->forest().slots_end(); }
  std::vector<BlockKey> KeysOf(const NamespaceId& ns) const;
  // The block and its resident descendants, children first.
  std::vector<BlockKey> Subtree(const BlockKey& key) const;

  std::uint64_t blocks() const { return policy_->size(); }
  std::uint64_t payload_bytes() const { return total_payload_bytes_; }
  std::uint64_t PayloadBytes(const BlockEntry& entry) const;
  std::size_t MemoryBytes() const;

 private:
  // Blocks that differ in neither are of one kind.
  struct Kind {
    NamespaceId ns;
    std::uint64_t record_bytes = 0;
    std::uint64_t payload_bytes = 0;
    std::uint64_t blocks = 0;
    std::uint32_t block_tokens = 1;
  };
  struct Known {
    std::uint64_t payload_bytes = 0;
    std::uint32_t block_tokens = 1;
  };
  enum Word : std::size_t { kKind, kExpires, kPage };  // of a node's three

  std::optional<Slot> Add(const BlockKey& key, const BlockEntry& entry, std::uint64_t last_use);
  std::uint32_t KindOf(const BlockEntry& entry);
  BlockEntry EntryOf(Slot slot) const;
  Slot SlotOf(const BlockKey& key) const { return policy_->forest().Find(key); }
  void SetDirty(Slot slot);

  std::unique_ptr<EvictionPolicy> policy_;
  ExtentPages pages_;
  std::vector<Kind> kinds_;
  absl::flat_hash_map<std::pair<NamespaceId, std::uint64_t>, std::uint32_t> kind_of_;
  absl::flat_hash_map<NamespaceId, Known> known_;
  absl::flat_hash_map<BlockKey, std::uint32_t> pins_;  // of those that have any
  std::vector<Slot> dirty_;  // may name a slot twice, or one that changed hands: its owner flag tells
  std::uint64_t total_payload_bytes_ = 0;
  std::int64_t earliest_expiry_ = 0;  // no entry expires before
};

}  // namespace kvist
