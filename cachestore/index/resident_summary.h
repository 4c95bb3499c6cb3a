// What is resident on the device, in memory: answers every lookup without I/O, holds the eviction order, and remembers
// which entries have changed since they were last written to the index.
// Not thread-safe: the owner's lock guards it (const methods may run concurrently).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "cachestore/index/index_records.h"
#include "cachestore/retention/prefix_lru.h"

namespace kvist {

class ResidentSummary {
 public:
  using Item = std::pair<BlockKey, BlockEntry>;

  // Fills an empty summary with what the index holds, in any order.
  void Load(std::vector<Item> items);

  // Payload bytes of each block of a namespace, for the statistics; unknown: its record's size counts.
  void SetPayloadBytes(const NamespaceId& ns, std::uint64_t bytes) { payload_bytes_[ns] = bytes; }
  std::uint64_t PayloadBytes(const BlockEntry& entry) const;

  // Sequence number for the entry of a block about to be inserted.
  std::uint64_t NextUse() { return next_use_++; }

  // As the most recently used. False, and nothing changes, if present.
  bool Insert(const BlockKey& key, const BlockEntry& entry);
  const BlockEntry* Find(const BlockKey& key) const;
  std::optional<BlockEntry> Erase(const BlockKey& key);

  // Most recently used from now on, and dirty. False if absent.
  bool Touch(const BlockKey& key, std::int64_t expires_unix_s);
  bool SetPins(const BlockKey& key, std::uint32_t pins);
  bool Relocate(const BlockKey& key, const ExtentStamp& extent);

  // The leaf that leaves next; nullopt: all that is left is pinned, or nothing is.
  std::optional<BlockKey> Victim() const { return lru_.Victim(); }
  // Blocks whose expiry is before `now`, unpinned and without unexpired descendants; children before parents.
  // Cheap when nothing can be due.
  std::vector<BlockKey> Expired(std::int64_t now_unix_s);

  // Up to `limit` entries touched since they were last taken, as they are now.
  std::vector<Item> TakeDirty(std::size_t limit);
  // Gives keys back after a failed write.
  void MarkDirty(const std::vector<Item>& items);
  std::size_t dirty() const { return dirty_.size(); }

  std::vector<Item> All() const { return {entries_.begin(), entries_.end()}; }
  std::vector<BlockKey> KeysOf(const NamespaceId& ns) const;
  // The block and its resident descendants, children first.
  std::vector<BlockKey> Subtree(const BlockKey& key) const;

  std::uint64_t blocks() const { return entries_.size(); }
  std::uint64_t payload_bytes() const { return total_payload_bytes_; }

 private:
  absl::flat_hash_map<BlockKey, BlockEntry> entries_;
  absl::flat_hash_map<NamespaceId, std::uint64_t> payload_bytes_;
  absl::flat_hash_set<BlockKey> dirty_;
  PrefixLru lru_;
  std::uint64_t next_use_ = 1;
  std::uint64_t total_payload_bytes_ = 0;
  std::int64_t earliest_expiry_ = 0;  // no entry expires before
};

}  // namespace kvist
