// DramTier: the blocks resident in DRAM. A table from key to a slot of the arena, with expiry, pins, leases and the
// eviction order. Knows nothing of lower tiers: movement/ tells it which blocks have a copy below.
//
// A block is evictable if it is a leaf of the resident tree and nothing holds it: no lease, no write-back under way,
// and not pinned while it exists in DRAM only. Whatever leaves the table while leased keeps its memory until release.
//
// Thread safety: any thread. Lives as long as its last lease or grant: always held by shared_ptr.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "cachestore/key/digest.h"
#include "cachestore/key/key_hasher.h"
#include "cachestore/retention/eviction_policy.h"
#include "cachestore/retention/presence.h"
#include "cachestore/tier/block_record.h"
#include "cachestore/tier/dram_arena.h"

namespace kvist {

// One block's record in the arena. Its identity is set when it is published; token ids and payload never change after.
class DramBlock {
 public:
  DramBlock(std::shared_ptr<DramArena> arena, std::span<std::byte> record, const NamespaceId& ns, RecordShape shape)
      : arena_(std::move(arena)), record_(record), ns_(ns), shape_(shape) {}
  ~DramBlock() { arena_->Free(record_); }
  DramBlock(const DramBlock&) = delete;
  DramBlock& operator=(const DramBlock&) = delete;

  const NamespaceId& ns() const { return ns_; }
  const BlockKey& key() const { return key_; }
  const BlockKey& parent() const { return parent_; }
  const RecordShape& shape() const { return shape_; }
  std::span<std::byte> record() const { return record_; }
  std::span<std::byte> payload() const { return record_.subspan(shape_.header_bytes(), shape_.payload_bytes()); }

 private:
  friend class DramTier;
  const std::shared_ptr<DramArena> arena_;
  const std::span<std::byte> record_;
  const NamespaceId ns_;
  const RecordShape shape_;
  BlockKey key_;  // these two: written once, before the block is published
  BlockKey parent_;
  std::uint32_t leases_ = 0;  // guarded by the tier's lock
};
using DramBlockRef = std::shared_ptr<DramBlock>;

// Where a block stands with the tier below.
enum class BlockState : std::uint8_t {
  kWriting,   // not there yet; its write-back is under way
  kBelow,     // written, or read from there
  kDramOnly,  // its write-back failed
};

class DramTier : public std::enable_shared_from_this<DramTier> {
 public:
  struct Counters {
    std::uint64_t blocks = 0;
    std::uint64_t payload_bytes = 0;
    std::uint64_t leased_blocks = 0;
    std::uint64_t evicted_blocks = 0;
    std::uint64_t corrupt_blocks = 0;
  };

  explicit DramTier(std::shared_ptr<DramArena> arena, EvictionKind eviction = kDefaultEviction)
      : arena_(std::move(arena)), policy_(MakeEvictionPolicy(eviction)) {}

  DramArena& arena() const { return *arena_; }

  // An unpublished block to fill; evicts as needed. ResourceExhausted if what is left can't be evicted.
  absl::StatusOr<DramBlockRef> Allocate(const NamespaceId& ns, const RecordShape& shape);

  struct Published {
    DramBlockRef block;
    bool inserted = false;  // false: `block` was there before and is kept
  };
  // Makes a sealed block findable under `key`. `drop_epoch`: nothing is inserted if a drop happened since it was read
  // (Published::block is then the caller's own). Internal if the key holds other tokens.
  absl::StatusOr<Published> Publish(DramBlockRef block, const BlockKey& key, const BlockKey& parent,
                                    std::span<const TokenId> tokens, BlockState state, absl::Time expires,
                                    std::optional<std::uint64_t> drop_epoch = std::nullopt);
  std::uint64_t drop_epoch() const;

  DramBlockRef Find(const BlockKey& key) const;
  Presence Lookup(const NamespaceId& ns, const BlockKey& key, absl::Time now) const;
  // Lookup of many under one lock.
  void Lookup(const NamespaceId& ns, std::span<const BlockKey> keys, absl::Time now,
              std::span<Presence> presence) const;

  // Leases those of `keys` that are present, in `ns`, unexpired and hold exactly their tokens (keys.size() blocks of
  // them); yields null for the others. Stops at an expired or mismatching block: the result may be shorter than keys.
  std::vector<DramBlockRef> Lease(const NamespaceId& ns, std::span<const BlockKey> keys,
                                  std::span<const TokenId> tokens, absl::Time now);
  void Lease(const DramBlockRef& block);
  void Release(std::span<const DramBlockRef> blocks);  // null entries are skipped

  // Marks a chain, in its order, as just used and sets its expiry; parents end up younger than their children.
  void Touch(std::span<const BlockKey> chain, absl::Time expires);
  absl::Time Expiry(const BlockKey& key) const;  // InfinitePast if absent

  void SetState(const DramBlock& block, BlockState state);

  // Pin counts are kept for blocks that are not resident too: they hold wherever the block is.
  void SetPins(const BlockKey& key, std::uint32_t pins);
  std::uint32_t Pins(const BlockKey& key) const;

  // Takes every block for which `matches` holds out of the table, with its pins.
  std::vector<DramBlockRef> Drop(const std::function<bool(const NamespaceId&)>& matches);
  // Takes expired blocks out, except pinned ones and those with unexpired descendants; yields their keys.
  std::vector<BlockKey> Expire(absl::Time now);

  void ForEach(const std::function<void(const DramBlock&)>& visit) const;
  Counters counters() const;
  void CountCorrupt();

 private:
  struct Entry {
    NamespaceId ns;  // this and the next next to the key: they are what a lookup reads
    absl::Time expires;
    DramBlockRef block;
    BlockState state = BlockState::kWriting;
    bool held = false;  // pinned in policy_ because of its state
  };

  bool Expired(const BlockKey& key, const Entry& entry, absl::Time now) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Presence LookupLocked(const NamespaceId& ns, const BlockKey& key, absl::Time now) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void LeaseLocked(DramBlock& block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool IsResident(const DramBlock& block) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Brings entry.held in line with its state and pins.
  void UpdateHold(const BlockKey& key, Entry& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Evicts the policy's choice; yields its bytes, 0 if none can go.
  std::size_t EvictOne() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Evicts all of the cheapest region that would hold a record of this size; false if none can go as a whole.
  bool EvictRegion(std::size_t record_bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  DramBlockRef EraseLocked(const BlockKey& key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::shared_ptr<DramArena> arena_;
  mutable absl::Mutex mutex_;
  absl::flat_hash_map<BlockKey, Entry> blocks_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<BlockKey, std::uint32_t> pins_ ABSL_GUARDED_BY(mutex_);
  const std::unique_ptr<EvictionPolicy> policy_ ABSL_PT_GUARDED_BY(mutex_);
  std::uint64_t drop_epoch_ ABSL_GUARDED_BY(mutex_) = 0;
  Counters counters_ ABSL_GUARDED_BY(mutex_);
};

// A lease's hold on its blocks.
class DramLease {
 public:
  DramLease(std::shared_ptr<DramTier> tier, std::vector<DramBlockRef> blocks)
      : tier_(std::move(tier)), blocks_(std::move(blocks)) {}
  ~DramLease() { tier_->Release(blocks_); }
  DramLease(const DramLease&) = delete;
  DramLease& operator=(const DramLease&) = delete;

 private:
  std::shared_ptr<DramTier> tier_;
  std::vector<DramBlockRef> blocks_;
};

}  // namespace kvist
