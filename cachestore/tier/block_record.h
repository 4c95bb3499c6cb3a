// A block's record: the image of one block, the same bytes in a DRAM slot and in an NVMe extent, so that a write-back
// or a promotion is one aligned transfer without a bounce copy.
//
//   [ header: fixed part | token ids LE32 | one XXH3_64 per layer chunk | zero padding to 4 KiB ][ payload | padding ]
//
// All integers little-endian. docs/format.md describes it for other readers.
// Thread safety: plain functions over caller's memory; token ids and payload of a published record never change.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cachestore/key/digest.h"
#include "cachestore/key/key_hasher.h"

namespace kvist {

inline constexpr std::size_t kRecordAlignment = 4096;
inline constexpr std::uint32_t kRecordFormatVersion = 1;

// Sizes of all records of one namespace.
struct RecordShape {
  std::uint32_t block_tokens = 0;
  std::uint32_t layers = 0;
  std::uint64_t layer_bytes = 0;

  std::size_t header_bytes() const;  // multiple of kRecordAlignment; the payload starts here
  std::size_t payload_bytes() const { return static_cast<std::size_t>(layers) * layer_bytes; }
  std::size_t record_bytes() const;  // header + payload, rounded up to kRecordAlignment
  friend bool operator==(const RecordShape&, const RecordShape&) = default;
};

// Where an extent lies; stamped into the header when the record is placed on a device. The generation of a reused
// segment changes, so a stale index entry cannot read a newer block's bytes.
struct ExtentStamp {
  std::uint64_t segment = 0;
  std::uint64_t generation = 0;
  std::uint64_t offset = 0;
  friend bool operator==(const ExtentStamp&, const ExtentStamp&) = default;
};

struct RecordHeader {
  NamespaceId ns;
  BlockKey parent;
  BlockKey key;
  RecordShape shape;
  ExtentStamp extent;
  std::int64_t expires_unix_s = 0;  // at write time; a hint for rebuilding a lost index
  // Counts the store's writes. A rewritten survivor keeps it: of two records of one key the higher is the newer block,
  // and a namespace's drop means all up to the number of its moment. 0: written by format 1.
  std::uint64_t sequence = 0;
};

// Writes header, tokens and layer checksums of a filled payload (already in place inside `record`).
void SealRecord(std::span<std::byte> record, const RecordHeader& header, std::span<const TokenId> tokens);

// Sets the extent fields and the header checksum; nothing a concurrent reader of tokens or payload looks at.
void StampRecord(std::span<std::byte> record, const ExtentStamp& extent, std::int64_t expires_unix_s);
// As above, for a record that is not a copy of one on the device: also sets the sequence number.
void StampRecord(std::span<std::byte> record, const ExtentStamp& extent, std::int64_t expires_unix_s,
                 std::uint64_t sequence);

// Copies the header of a published record except for what StampRecord sets, which another thread may be setting at this
// moment; the copy must be stamped before it is a header. `into`: shape.header_bytes() long.
void CopyRecordHeader(std::span<const std::byte> record, const RecordShape& shape, std::span<std::byte> into);

// Parses and checks the header (magic, version, sizes within `record`, header checksum). DataLoss names the fault.
absl::StatusOr<RecordHeader> ReadRecordHeader(std::span<const std::byte> record);

// Checks every layer chunk's checksum. DataLoss names the first bad layer. Needs a valid header.
absl::Status VerifyRecordPayload(std::span<const std::byte> record, const RecordShape& shape);

// The size of the record that begins with these bytes, before anything of it is verified: at least kRecordAlignment of
// them. 0 if no record begins here.
std::size_t PeekRecordBytes(std::span<const std::byte> bytes);

// Whether what lies behind the payload, up to the record's end, is as SealRecord left it.
bool RecordTailIsZero(std::span<const std::byte> record, const RecordShape& shape);

// The token ids of a sealed record, in place.
std::span<const TokenId> RecordTokens(std::span<const std::byte> record);

// Whether the record holds exactly these tokens, compared one by one.
bool RecordTokensEqual(std::span<const std::byte> record, std::span<const TokenId> tokens);

}  // namespace kvist
