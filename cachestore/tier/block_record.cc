#include "cachestore/tier/block_record.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cstring>
#include <string>

#include "cachestore/key/namespace_spec.h"
#include "fmt/format.h"
#include "xxhash.h"

namespace kvist {
namespace {

// Tokens and checksums are copied between memory and the record as they are.
static_assert(std::endian::native == std::endian::little, "records are little-endian; this host needs conversions");

constexpr std::array<char, 8> kMagic = {'K', 'V', 'I', 'S', 'T', 'B', 'L', 'K'};

// Byte offsets of the fixed part. Fields are naturally aligned.
constexpr std::size_t kMagicAt = 0;
constexpr std::size_t kVersionAt = 8;       // u32
constexpr std::size_t kHeaderBytesAt = 12;  // u32: redundant with the shape, so a torn header shows
constexpr std::size_t kChecksumAt = 16;     // u64: see HeaderChecksum
constexpr std::size_t kExpiresAt = 24;      // i64
constexpr std::size_t kNamespaceAt = 32;    // digests: hi u64, lo u64
constexpr std::size_t kParentAt = 48;
constexpr std::size_t kKeyAt = 64;
constexpr std::size_t kBlockTokensAt = 80;  // u32
constexpr std::size_t kLayersAt = 84;       // u32
constexpr std::size_t kLayerBytesAt = 88;   // u64
constexpr std::size_t kSegmentAt = 96;      // u64
constexpr std::size_t kGenerationAt = 104;  // u64
constexpr std::size_t kOffsetAt = 112;      // u64
constexpr std::size_t kSequenceAt = 120;    // u64
constexpr std::size_t kFixedBytes = 128;

constexpr std::size_t RoundUp(std::size_t n, std::size_t to) { return (n + to - 1) / to * to; }

std::size_t LayerChecksumsAt(const RecordShape& shape) {
  return RoundUp(kFixedBytes + std::size_t{shape.block_tokens} * sizeof(TokenId), sizeof(std::uint64_t));
}

template <typename T>
void Put(std::span<std::byte> record, std::size_t at, const T& value) {
  std::memcpy(record.data() + at, &value, sizeof(T));
}

template <typename T>
T Get(std::span<const std::byte> record, std::size_t at) {
  T value;
  std::memcpy(&value, record.data() + at, sizeof(T));
  return value;
}

void PutDigest(std::span<std::byte> record, std::size_t at, const Digest128& digest) {
  Put(record, at, digest.hi);
  Put(record, at + 8, digest.lo);
}

Digest128 GetDigest(std::span<const std::byte> record, std::size_t at) {
  return {.hi = Get<std::uint64_t>(record, at), .lo = Get<std::uint64_t>(record, at + 8)};
}

// Of all header bytes but the checksum itself: XXH3_64 of the part after it, seeded by that of the part before it.
std::uint64_t HeaderChecksum(std::span<const std::byte> record, std::size_t header_bytes) {
  const std::size_t after = kChecksumAt + sizeof(std::uint64_t);
  const std::uint64_t front = XXH3_64bits(record.data(), kChecksumAt);
  return XXH3_64bits_withSeed(record.data() + after, header_bytes - after, front);
}

std::uint64_t LayerChecksum(std::span<const std::byte> record, const RecordShape& shape, std::uint32_t layer) {
  const std::size_t at = shape.header_bytes() + static_cast<std::size_t>(layer) * shape.layer_bytes;
  return XXH3_64bits(record.data() + at, shape.layer_bytes);
}

// Whether a stored shape is one that a namespace can have; also keeps size arithmetic far from overflow.
bool PlausibleShape(const RecordShape& shape) {
  return shape.block_tokens >= NamespaceSpec::kBlockTokensMin && shape.block_tokens <= NamespaceSpec::kBlockTokensMax &&
         shape.layers >= 1 && shape.layers <= NamespaceSpec::kLayersMax && shape.layer_bytes >= 1 &&
         shape.layer_bytes <= NamespaceSpec::kPayloadBytesMax / shape.layers;
}

}  // namespace

std::size_t RecordShape::header_bytes() const {
  return RoundUp(LayerChecksumsAt(*this) + std::size_t{layers} * sizeof(std::uint64_t), kRecordAlignment);
}

std::size_t RecordShape::record_bytes() const { return RoundUp(header_bytes() + payload_bytes(), kRecordAlignment); }

void SealRecord(std::span<std::byte> record, const RecordHeader& header, std::span<const TokenId> tokens) {
  const RecordShape& shape = header.shape;
  assert(record.size() >= shape.record_bytes() && tokens.size() == shape.block_tokens);
  const std::size_t header_bytes = shape.header_bytes();
  std::memset(record.data(), 0, header_bytes);
  // The tail after the payload is written to the device too: leave no bytes of an earlier block in it.
  const std::size_t payload_end = header_bytes + shape.payload_bytes();
  std::memset(record.data() + payload_end, 0, shape.record_bytes() - payload_end);

  Put(record, kMagicAt, kMagic);
  Put(record, kVersionAt, kRecordFormatVersion);
  Put(record, kHeaderBytesAt, static_cast<std::uint32_t>(header_bytes));
  PutDigest(record, kNamespaceAt, header.ns);
  PutDigest(record, kParentAt, header.parent);
  PutDigest(record, kKeyAt, header.key);
  Put(record, kBlockTokensAt, shape.block_tokens);
  Put(record, kLayersAt, shape.layers);
  Put(record, kLayerBytesAt, shape.layer_bytes);
  std::memcpy(record.data() + kFixedBytes, tokens.data(), tokens.size_bytes());
  const std::size_t checksums_at = LayerChecksumsAt(shape);
  for (std::uint32_t layer = 0; layer < shape.layers; ++layer) {
    Put(record, checksums_at + layer * sizeof(std::uint64_t), LayerChecksum(record, shape, layer));
  }
  StampRecord(record, header.extent, header.expires_unix_s, header.sequence);
}

void StampRecord(std::span<std::byte> record, const ExtentStamp& extent, std::int64_t expires_unix_s) {
  Put(record, kExpiresAt, expires_unix_s);
  Put(record, kSegmentAt, extent.segment);
  Put(record, kGenerationAt, extent.generation);
  Put(record, kOffsetAt, extent.offset);
  Put(record, kChecksumAt, HeaderChecksum(record, Get<std::uint32_t>(record, kHeaderBytesAt)));
}

void CopyRecordHeader(std::span<const std::byte> record, const RecordShape& shape, std::span<std::byte> into) {
  const std::size_t header_bytes = shape.header_bytes();
  assert(into.size() >= header_bytes && record.size() >= header_bytes);
  const auto copy = [&](std::size_t from, std::size_t to) {
    std::memcpy(into.data() + from, record.data() + from, to - from);
  };
  copy(0, kChecksumAt);
  copy(kNamespaceAt, kSegmentAt);
  copy(kSequenceAt + sizeof(std::uint64_t), header_bytes);
}

void StampRecord(std::span<std::byte> record, const ExtentStamp& extent, std::int64_t expires_unix_s,
                 std::uint64_t sequence) {
  Put(record, kSequenceAt, sequence);
  StampRecord(record, extent, expires_unix_s);
}

std::size_t PeekRecordBytes(std::span<const std::byte> bytes) {
  if (bytes.size() < kRecordAlignment || Get<std::array<char, 8>>(bytes, kMagicAt) != kMagic) return 0;
  const RecordShape shape{Get<std::uint32_t>(bytes, kBlockTokensAt), Get<std::uint32_t>(bytes, kLayersAt),
                          Get<std::uint64_t>(bytes, kLayerBytesAt)};
  return PlausibleShape(shape) ? shape.record_bytes() : 0;
}

bool RecordTailIsZero(std::span<const std::byte> record, const RecordShape& shape) {
  const std::size_t end = shape.header_bytes() + shape.payload_bytes();
  return std::all_of(record.begin() + static_cast<std::ptrdiff_t>(end),
                     record.begin() + static_cast<std::ptrdiff_t>(shape.record_bytes()),
                     [](std::byte b) { return b == std::byte{0}; });
}

absl::StatusOr<RecordHeader> ReadRecordHeader(std::span<const std::byte> record) {
  if (record.size() < kRecordAlignment) {
    return absl::DataLossError(fmt::format("block record truncated: {} bytes", record.size()));
  }
  if (Get<std::array<char, 8>>(record, kMagicAt) != kMagic) {
    return absl::DataLossError("block record: bad magic");
  }
  if (const auto version = Get<std::uint32_t>(record, kVersionAt); version != kRecordFormatVersion) {
    return absl::DataLossError(fmt::format("block record: format version {}, not {}", version, kRecordFormatVersion));
  }
  RecordHeader header;
  header.ns = GetDigest(record, kNamespaceAt);
  header.parent = GetDigest(record, kParentAt);
  header.key = GetDigest(record, kKeyAt);
  header.shape.block_tokens = Get<std::uint32_t>(record, kBlockTokensAt);
  header.shape.layers = Get<std::uint32_t>(record, kLayersAt);
  header.shape.layer_bytes = Get<std::uint64_t>(record, kLayerBytesAt);
  header.extent.segment = Get<std::uint64_t>(record, kSegmentAt);
  header.extent.generation = Get<std::uint64_t>(record, kGenerationAt);
  header.extent.offset = Get<std::uint64_t>(record, kOffsetAt);
  header.expires_unix_s = Get<std::int64_t>(record, kExpiresAt);
  header.sequence = Get<std::uint64_t>(record, kSequenceAt);

  if (!PlausibleShape(header.shape)) {
    return absl::DataLossError(fmt::format("block record: impossible shape ({} tokens, {} layers of {} bytes)",
                                           header.shape.block_tokens, header.shape.layers, header.shape.layer_bytes));
  }
  const std::size_t header_bytes = header.shape.header_bytes();
  if (Get<std::uint32_t>(record, kHeaderBytesAt) != header_bytes || header.shape.record_bytes() > record.size()) {
    return absl::DataLossError(
        fmt::format("block record: sizes disagree (needs {} of {} bytes)", header.shape.record_bytes(), record.size()));
  }
  if (Get<std::uint64_t>(record, kChecksumAt) != HeaderChecksum(record, header_bytes)) {
    return absl::DataLossError("block record: header checksum mismatch");
  }
  return header;
}

absl::Status VerifyRecordPayload(std::span<const std::byte> record, const RecordShape& shape) {
  const std::size_t checksums_at = LayerChecksumsAt(shape);
  for (std::uint32_t layer = 0; layer < shape.layers; ++layer) {
    const auto stored = Get<std::uint64_t>(record, checksums_at + layer * sizeof(std::uint64_t));
    if (stored != LayerChecksum(record, shape, layer)) {
      return absl::DataLossError(fmt::format("block record: checksum mismatch in layer {} of {}", layer, shape.layers));
    }
  }
  return absl::OkStatus();
}

std::span<const TokenId> RecordTokens(std::span<const std::byte> record) {
  // Sound: records are 4 KiB-aligned, and the bytes were written as TokenIds by memcpy.
  return {reinterpret_cast<const TokenId*>(record.data() + kFixedBytes), Get<std::uint32_t>(record, kBlockTokensAt)};
}

bool RecordTokensEqual(std::span<const std::byte> record, std::span<const TokenId> tokens) {
  if (record.size() < kFixedBytes + tokens.size_bytes()) return false;
  if (Get<std::uint32_t>(record, kBlockTokensAt) != tokens.size()) return false;
  return std::memcmp(record.data() + kFixedBytes, tokens.data(), tokens.size_bytes()) == 0;
}

}  // namespace kvist
