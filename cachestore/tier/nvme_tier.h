// NvmeTier: blocks in append-only O_DIRECT segment files, found through a RocksDB index, moved by io_uring.
// It owns one store directory: its lock, format version, cluster secret, namespaces, segments and index.
//
//   DIR/FORMAT      text: format version; one not known here is refused, never touched; format 1 is upgraded
//   DIR/LOCK        flock: a second process is refused, naming the holder's pid
//   DIR/SECRET, namespaces/  what cannot be recomputed
//   DIR/index/      RocksDB: column families blocks, namespaces, segments, meta; can be rebuilt (cachestore/fsck)
//   DIR/segments/   preallocated files of segment_bytes
//   DIR/REMOVALS, CLEAN      for checking and rebuilding; see docs/format.md
//
// Crash order: data extent -> grouped fdatasync -> index batch with its WAL synced -> acknowledge. Freeing: index
// delete durable -> only then may space be reused (a reused segment gets a new generation).
//
// Thread safety: any thread. Completions run on the tier's threads and must not block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cachestore/io/clock.h"
#include "cachestore/prefix_store.h"
#include "cachestore/retention/eviction_policy.h"
#include "cachestore/retention/presence.h"
#include "cachestore/tier/block_record.h"

namespace rocksdb {
class Env;
}  // namespace rocksdb

namespace kvist {

// Touches reach the index at the latest after this.
inline constexpr absl::Duration kTouchFlushInterval = absl::Seconds(10);

class FileSystem;  // cachestore/io/file.h: the seam that fault injection wraps

struct NvmeTierOptions {
  std::string directory;
  std::uint64_t capacity_bytes = std::uint64_t{16} << 30;  // all segment files together
  std::uint64_t segment_bytes = std::uint64_t{256} << 20;  // must hold at least one record of every namespace
  std::uint32_t queue_depth = 32;                          // transfers in flight
  std::size_t write_queue_limit = 4096;                    // writes not yet durable; beyond it ResourceExhausted
  EvictionKind eviction = kDefaultEviction;
  // The key secret of a store that is made by this call; a random one if unset. FailedPrecondition if the store exists
  // with another.
  std::optional<KeyHasher::Secret> secret = std::nullopt;
  // Open waits so long for the index to be read, real time, and then goes on without; faults found by then fail it.
  absl::Duration load_wait = absl::Seconds(1);
  FileSystem* file_system = nullptr;  // null: the real one; must outlive the tier
  rocksdb::Env* index_env = nullptr;  // the same for the index's files
  const Clock* clock = nullptr;       // required; must outlive the tier
};

struct NvmeBlock {
  NamespaceId ns;
  BlockKey key;
  BlockKey parent;
  std::size_t record_bytes = 0;
  std::int64_t expires_unix_s = 0;
  std::uint32_t pins = 0;
};

struct NvmeTierStats {
  TierStats tier;
  std::uint64_t evicted_blocks = 0;
  std::uint64_t expired_blocks = 0;
  std::uint64_t corrupt_blocks = 0;
  std::uint64_t device_errors = 0;
  std::uint64_t writes_pending = 0;
  std::uint64_t bytes_written = 0;   // to segments, rewriting of survivors included
  std::uint64_t bytes_accepted = 0;  // by Write: write amplification = written / accepted
  bool direct_io = false;
  bool loading = false;  // `tier` counts what is loaded so far
};

class NvmeTier {
 public:
  // Opens or creates the store directory. Errors name the fault and the remedy: PermissionDenied (not writable),
  // ResourceExhausted (disk full), FailedPrecondition (in use by another process; other format version),
  // DataLoss (index unreadable: says how to rebuild).
  static absl::StatusOr<std::unique_ptr<NvmeTier>> Open(const NvmeTierOptions& options);
  virtual ~NvmeTier() = default;

  virtual const KeyHasher::Secret& secret() const = 0;
  // The newest wall-clock time that an earlier process recorded here (InfinitePast: none): a clock that now reads
  // earlier has gone back.
  virtual absl::Time newest_time() const = 0;

  // Namespaces are durable before Put returns. Put of an existing id replaces its ttl.
  struct StoredNamespace {
    Namespace ns;
    std::optional<absl::Duration> ttl;
  };
  virtual absl::Status PutNamespace(const StoredNamespace& ns) = 0;
  virtual std::vector<StoredNamespace> Namespaces() const = 0;

  // Registers memory that Write and Read will use (the DRAM arena), so that transfers need no per-call pinning.
  // Optional; failure is logged and harmless.
  virtual void RegisterBuffer(std::span<std::byte> memory) = 0;

  // From the resident summary, without I/O once that is loaded.
  virtual std::optional<NvmeBlock> Find(const BlockKey& key) const = 0;
  // Which of many are present in `ns` and don't expire before `now_unix_s`, under one lock.
  virtual void Lookup(const NamespaceId& ns, std::span<const BlockKey> keys, std::int64_t now_unix_s,
                      std::span<Presence> presence) const = 0;
  // All resident blocks, while they are loaded those that are there by now: for listing and tests.
  virtual void ForEach(const std::function<void(const NvmeBlock&)>& visit) const = 0;

  // Open returns before a large index is read whole (NvmeTierOptions::load_wait). Lookups go on as usual meanwhile;
  // writes are taken and wait; drops wait.
  virtual bool loading() const = 0;
  // Runs when all blocks are loaded or loading has failed; at once if it has ended, else on a thread of the tier.
  virtual void WhenLoaded(absl::AnyInvocable<void()> done) = 0;
  // Visits all resident blocks, those to be loaded when they are; some perhaps twice. `visit` must not block, nor call
  // the tier.
  virtual void ForEachLoaded(std::function<void(const NvmeBlock&)> visit) = 0;

  // Makes a sealed record durable; `record` (aligned, record_bytes long) must stay valid and unchanged until `done`.
  // The tier stamps it. AlreadyExists if the key is resident (done at once). Evicts to make room; ResourceExhausted
  // if that is not possible. After an error the block is wholly absent.
  virtual void Write(const NvmeBlock& block, std::span<std::byte> record, DoneStatus done) = 0;

  // Reads a record into `record` (aligned, record_bytes long) and verifies all of it: header, extent stamp, key,
  // namespace, every layer. NotFound: not resident (any more). DataLoss: corrupt; the block is dropped and counted.
  virtual void Read(const BlockKey& key, std::span<std::byte> record, DoneStatus done) = 0;

  // Moves the block to the recent end of the eviction order and sets its expiry. Reaches the disk in batches
  // (at the latest every kTouchFlushInterval, at Flush and at close): a crash may forget the newest touches.
  // `keys` in the chain's order, head first: parents are made younger than their children.
  virtual void Touch(std::span<const BlockKey> keys, std::int64_t expires_unix_s) = 0;
  // Sets the durable pin count.
  virtual absl::Status SetPins(const BlockKey& key, std::uint32_t pins) = 0;

  // Blocks being read by the caller are safe from eviction while held.
  // Durable when it returns; yields what went. A dropped namespace's blocks do not come back with a rebuilt index.
  virtual absl::StatusOr<DropResult> Drop(std::span<const BlockKey> keys) = 0;
  virtual absl::StatusOr<DropResult> DropNamespace(const NamespaceId& ns) = 0;

  // Drops blocks whose expiry is before `now_unix_s`, except pinned ones and those with unexpired descendants.
  virtual absl::StatusOr<std::uint64_t> DropExpired(std::int64_t now_unix_s) = 0;

  // Completes when all earlier writes are durable and touches persisted.
  virtual void Flush(DoneStatus done) = 0;

  virtual NvmeTierStats Stats() const = 0;
};

}  // namespace kvist
