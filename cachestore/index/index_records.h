// What the index keeps per block, namespace and segment, and its bytes on disk (docs/format.md): a version byte, then
// fields in fixed order, little-endian.
// Plain values and functions; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cachestore/key/digest.h"
#include "cachestore/key/namespace_spec.h"
#include "cachestore/tier/block_record.h"

namespace kvist {

struct BlockEntry {
  NamespaceId ns;
  BlockKey parent;
  ExtentStamp extent;
  std::uint64_t record_bytes = 0;
  std::int64_t expires_unix_s = 0;
  std::uint64_t used = 0;  // sequence number of the last use: the eviction order across restarts
  std::uint32_t pins = 0;
  friend bool operator==(const BlockEntry&, const BlockEntry&) = default;
};

struct NamespaceEntry {
  NamespaceSpec spec;
  std::optional<absl::Duration> ttl;  // whole milliseconds
  // Its records up to this sequence number were dropped: whatever still lies in a segment, they do not exist.
  std::uint64_t dropped_through = 0;
  friend bool operator==(const NamespaceEntry&, const NamespaceEntry&) = default;
};

struct SegmentEntry {
  std::uint64_t generation = 0;
  std::uint64_t bytes = 0;  // of the file
  friend bool operator==(const SegmentEntry&, const SegmentEntry&) = default;
};

std::string EncodeDigest(const Digest128& digest);  // 16 bytes: hi, lo
std::string EncodeBlockEntry(const BlockEntry& entry);
std::string EncodeNamespaceEntry(const NamespaceEntry& entry);
std::string EncodeSegmentEntry(const SegmentEntry& entry);
std::string EncodeU64(std::uint64_t value);

// DataLoss: not of this form, or of a version not known here.
absl::StatusOr<Digest128> DecodeDigest(std::string_view bytes);
absl::StatusOr<BlockEntry> DecodeBlockEntry(std::string_view bytes);
absl::StatusOr<NamespaceEntry> DecodeNamespaceEntry(std::string_view bytes);
absl::StatusOr<SegmentEntry> DecodeSegmentEntry(std::string_view bytes);
absl::StatusOr<std::uint64_t> DecodeU64(std::string_view bytes);

}  // namespace kvist
