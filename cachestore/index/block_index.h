// The durable index of one store directory: RocksDB with the column families blocks, namespaces, segments and meta.
// Its memory is bounded (one block cache, filters and write buffers charged to it). Reads happen after the store
// opened; once all is read the resident summary answers, and only batches are written here.
//
// Thread safety: any thread; the order of concurrent Apply calls is the caller's to establish.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cachestore/index/index_records.h"
#include "cachestore/key/key_hasher.h"

namespace rocksdb {
class Env;
}  // namespace rocksdb

namespace kvist {

struct BlockIndexOptions {
  std::string directory;
  // Create it if it is missing. Otherwise that is DataLoss: a store whose index is gone must not start empty.
  bool create = true;
  // For a new index: the secret to keep a copy of; random if unset.
  std::optional<KeyHasher::Secret> secret = std::nullopt;
  // Block cache, and in it index and filter blocks and write buffers. The index is read once, at open.
  std::uint64_t memory_bytes = std::uint64_t{64} << 20;
  rocksdb::Env* env = nullptr;  // null: RocksDB's own; the seam for tests of its files; must outlive the index
};

// Changes that become visible and durable together. Applied in the order: deletes, then puts.
struct IndexBatch {
  std::vector<BlockKey> delete_blocks;
  std::vector<std::pair<BlockKey, BlockEntry>> put_blocks;
  std::vector<std::pair<NamespaceId, NamespaceEntry>> put_namespaces;
  std::vector<std::uint64_t> delete_segments;
  std::vector<std::pair<std::uint64_t, SegmentEntry>> put_segments;
  std::optional<absl::Time> newest_time;
  std::optional<std::uint64_t> newest_sequence;  // of a record; see RecordHeader

  bool empty() const {
    return delete_blocks.empty() && put_blocks.empty() && put_namespaces.empty() && delete_segments.empty() &&
           put_segments.empty() && !newest_time && !newest_sequence;
  }
};

enum class IndexSync : std::uint8_t { kYes, kNo };  // kNo: a crash may forget it

class BlockIndex {
 public:
  static constexpr std::uint32_t kFormatVersion = 1;

  // Opens or creates. DataLoss: damaged, says how to start over; FailedPrecondition: other format version;
  // ResourceExhausted, PermissionDenied, Unavailable as the file system has it.
  static absl::StatusOr<std::unique_ptr<BlockIndex>> Open(const BlockIndexOptions& options);
  // For looking only, and strictly: nothing on disk changes, Apply fails, and a log that ends in anything but a torn
  // write is DataLoss.
  static absl::StatusOr<std::unique_ptr<BlockIndex>> OpenToCheck(const BlockIndexOptions& options);
  // Deletes the index there. OK if there is none.
  static absl::Status Destroy(const std::string& directory);
  virtual ~BlockIndex() = default;

  // A copy of the store's SECRET, made when the index was created.
  virtual const KeyHasher::Secret& secret() const = 0;
  // The newest wall-clock time recorded before this open; InfinitePast if none.
  virtual absl::Time newest_time() const = 0;
  // The highest record sequence number that was applied before this open.
  virtual std::uint64_t newest_sequence() const = 0;
  // Counts the changes ever applied.
  virtual std::uint64_t last_change() const = 0;

  // Reads all of it against its checksums. DataLoss names the file.
  virtual absl::Status Verify() = 0;

  // All or nothing. After an error nothing of it is visible in this process, but a crash may bring it back. A full
  // disk is not for ever: each call first tries to leave the error state that the last one caused.
  virtual absl::Status Apply(const IndexBatch& batch, IndexSync sync) = 0;

  // An entry that cannot be decoded is passed over and counted: a miss.
  // Until `visit` says false.
  virtual absl::Status ForEachBlock(const std::function<bool(const BlockKey&, const BlockEntry&)>& visit) = 0;
  // Those of `keys` that are there, in one go.
  virtual absl::StatusOr<std::vector<std::pair<BlockKey, BlockEntry>>> FindBlocks(std::span<const BlockKey> keys) = 0;
  // Gives back the memory kept for further reads of blocks; they remain possible.
  virtual void EndReads() = 0;
  virtual absl::Status ForEachNamespace(const std::function<void(const NamespaceId&, NamespaceEntry)>& visit) = 0;
  virtual absl::Status ForEachSegment(const std::function<void(std::uint64_t, const SegmentEntry&)>& visit) = 0;
  virtual std::uint64_t undecodable() const = 0;
};

}  // namespace kvist
