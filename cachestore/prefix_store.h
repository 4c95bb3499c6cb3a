// PrefixStore: the one interface everyone programs against. LocalStore (embedded) and RemoteStore (client of
// kvistd) implement it; tests/conformance runs on both.
//
// The invariant: a hit returns exactly the KV of exactly these tokens in exactly this namespace, or it is a miss.
//
// Thread safety: all methods may be called from any thread. Completions run once, on a store thread or on the
// caller's before the call returns; they must not block and may call the store again. Spans passed in need to live
// only until the call returns.
// Errors: NotFound (a miss, an unknown namespace, a parent not resident), InvalidArgument (names the fault),
// ResourceExhausted (overload or no space: at once, never a queue without end), Unavailable (daemon or device gone),
// DeadlineExceeded, Cancelled. An engine that gets any error carries on with a miss.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cachestore/key/digest.h"
#include "cachestore/key/key_hasher.h"
#include "cachestore/key/namespace_spec.h"

namespace kvist {

enum class Tier : std::uint8_t { kDram = 1, kNvme = 2, kShared = 3 };
std::string_view TierName(Tier tier);  // "dram", "nvme", "shared"

// When a commit's completion runs: once readable from DRAM, or once it would survive any crash.
enum class Durability : std::uint8_t { kMemory = 0, kDurable = 1 };

template <typename T>
using Done = absl::AnyInvocable<void(absl::StatusOr<T>) &&>;
using DoneStatus = absl::AnyInvocable<void(absl::Status) &&>;

struct CallOptions {
  absl::Duration timeout = absl::InfiniteDuration();
  std::stop_token cancel;
};

// A namespace as this store knows it.
struct Namespace {
  NamespaceId id;  // also the parent key of first blocks
  NamespaceSpec spec;
};

struct NamespaceOptions {
  std::optional<absl::Duration> ttl;  // sliding retention of its blocks; the store's default (72 h) if unset
};

// The longest resident chain for a token sequence: block i covers tokens [i*block_tokens, (i+1)*block_tokens).
// Information only: a block may be gone by the time of Acquire, which is where a hit is established.
struct PrefixMatch {
  std::vector<Tier> tiers;  // one per matched block: the fastest tier it is in now
  std::size_t blocks() const { return tiers.size(); }
};

// A pin on resident blocks in DRAM. While it lives its payloads are readable, immutable and never moved.
// Move-only; released on destruction, from any thread.
class Lease {
 public:
  struct Block {
    BlockKey key;
    Tier source;                         // where it was when acquired
    std::span<const std::byte> payload;  // layer-major; spec.payload_bytes() long; 4 KiB-aligned
  };
  Lease() = default;
  // `pin` is whatever keeps `blocks` alive; it is dropped when the lease is.
  Lease(std::vector<Block> blocks, std::shared_ptr<void> pin) : blocks_(std::move(blocks)), pin_(std::move(pin)) {}
  Lease(Lease&&) noexcept = default;
  Lease& operator=(Lease&&) noexcept = default;
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

  std::span<const Block> blocks() const { return blocks_; }
  bool empty() const { return blocks_.empty(); }

 private:
  std::vector<Block> blocks_;
  std::shared_ptr<void> pin_;
};

// A slot to fill with one block's payload. Move-only; gives its slot back on destruction unless committed.
class WriteGrant {
 public:
  WriteGrant() = default;
  // `slot` owns the memory; the store that made it knows its concrete type.
  WriteGrant(std::span<std::byte> payload, std::shared_ptr<void> slot) : payload_(payload), slot_(std::move(slot)) {}
  WriteGrant(WriteGrant&&) noexcept = default;
  WriteGrant& operator=(WriteGrant&&) noexcept = default;
  WriteGrant(const WriteGrant&) = delete;
  WriteGrant& operator=(const WriteGrant&) = delete;

  std::span<std::byte> payload() const { return payload_; }  // spec.payload_bytes() long
  const std::shared_ptr<void>& slot() const { return slot_; }

 private:
  std::span<std::byte> payload_;
  std::shared_ptr<void> slot_;
};

struct CommitRequest {
  NamespaceId ns;
  BlockKey parent;              // previous block's key, or `ns` for a first block; must be resident in `ns`
  std::vector<TokenId> tokens;  // exactly spec.block_tokens
  WriteGrant grant;             // from Grant(ns) of the same store, filled
  Durability durability = Durability::kMemory;
};

struct DropRequest {  // exactly one is set
  std::optional<NamespaceId> ns;
  std::optional<std::string> tenant;
  bool all = false;
};
struct DropResult {
  std::uint64_t blocks = 0;
  std::uint64_t bytes = 0;  // payload bytes, counted once per block
};

struct TierStats {
  std::uint64_t blocks = 0;
  std::uint64_t bytes = 0;           // payload bytes held
  std::uint64_t capacity_bytes = 0;  // never exceeded
};

// The tier that stores of several machines share; what it holds is nobody's to count.
struct SharedStats {
  bool configured = false;
  bool available = false;        // as far as known: it answers, and it is the folder it should be
  std::uint64_t hit_blocks = 0;  // by Acquire
  std::uint64_t read_bytes = 0;
  std::uint64_t written_blocks = 0;
  std::uint64_t written_bytes = 0;
  std::uint64_t timeouts = 0;        // operations given up
  std::uint64_t errors = 0;          // operations failed for any other reason but absence
  std::uint64_t corrupt_blocks = 0;  // objects that did not verify: each became a miss and was removed
  std::uint64_t write_back_pending = 0;
  std::uint64_t write_back_dropped = 0;  // never written: no room in the queue, gone before their turn, or failed
};

struct StoreStats {
  TierStats dram;
  TierStats nvme;
  SharedStats shared;
  std::uint64_t namespaces = 0;
  std::uint64_t leased_blocks = 0;
  std::uint64_t hit_blocks_dram = 0;  // by Acquire
  std::uint64_t hit_blocks_nvme = 0;
  std::uint64_t miss_blocks = 0;  // blocks asked of Acquire and not given
  std::uint64_t committed_blocks = 0;
  std::uint64_t duplicate_commits = 0;
  std::uint64_t evicted_blocks_dram = 0;
  std::uint64_t evicted_blocks_nvme = 0;
  std::uint64_t expired_blocks = 0;
  std::uint64_t corrupt_blocks = 0;  // checksum, key or token mismatch: each became a miss
  std::uint64_t write_back_pending = 0;
  std::uint64_t device_errors = 0;
  bool loading = false;  // the index is still read: `nvme` counts what is loaded so far
};

struct NamespaceInfo {
  Namespace ns;
  std::uint64_t blocks = 0;  // resident in any tier, counted once
  std::uint64_t bytes = 0;
  absl::Time last_used = absl::InfinitePast();
};

class PrefixStore {
 public:
  virtual ~PrefixStore() = default;

  // Finds or creates the namespace of `spec`. Blocks (one round trip when remote).
  virtual absl::StatusOr<Namespace> OpenNamespace(const NamespaceSpec& spec, const NamespaceOptions& options) = 0;

  // How much of `tokens` is resident. Does not extend retention (a probe must not keep blocks alive).
  virtual void Match(const NamespaceId& ns, std::span<const TokenId> tokens, const CallOptions& options,
                     Done<PrefixMatch> done) = 0;

  // Leases the longest readable chain from the first block on, at most `max_blocks`, promoting to DRAM what is
  // lower. A block that is gone, expired, or fails verification ends the chain before it; an empty lease is a miss.
  // Every token id is compared. Extends retention of what it leases.
  virtual void Acquire(const NamespaceId& ns, std::span<const TokenId> tokens, std::size_t max_blocks,
                       const CallOptions& options, Done<Lease> done) = 0;

  // A slot for one block of `ns`. Never blocks: ResourceExhausted when DRAM is full of leased or unwritten blocks.
  virtual absl::StatusOr<WriteGrant> Grant(const NamespaceId& ns) = 0;

  // Publishes a filled grant and yields the block's key. Idempotent: a block already resident is kept and the grant
  // returned; concurrent duplicates are written once. Readers see all of the block or none of it.
  virtual void Commit(CommitRequest request, const CallOptions& options, Done<BlockKey> done) = 0;

  // Extends retention of the resident prefix of `tokens`; yields the number of blocks touched.
  virtual void Touch(const NamespaceId& ns, std::span<const TokenId> tokens, const CallOptions& options,
                     Done<std::size_t> done) = 0;

  // Pinned blocks neither expire nor are evicted, across restarts; pins nest by count of Pin calls in this store.
  virtual void Pin(const NamespaceId& ns, std::span<const TokenId> tokens, const CallOptions& options,
                   Done<std::size_t> done) = 0;
  virtual void Unpin(const NamespaceId& ns, std::span<const TokenId> tokens, const CallOptions& options,
                     Done<std::size_t> done) = 0;

  // Forgets blocks at once; leased ones become unfindable now and are freed at release.
  virtual void Drop(const DropRequest& request, const CallOptions& options, Done<DropResult> done) = 0;

  // Completes when all that was committed before is durable, or has left the store (dropped, expired, evicted).
  virtual void Flush(const CallOptions& options, DoneStatus done) = 0;

  virtual absl::StatusOr<StoreStats> Stats() = 0;
  virtual absl::StatusOr<std::vector<NamespaceInfo>> ListNamespaces() = 0;
};

}  // namespace kvist
