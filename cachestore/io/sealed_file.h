// Small files that prove their own contents: what cannot be recomputed (the secret, the namespaces) is kept in them.
//
//   0 magic, 8 chars | 8 u32 version | 12 u32 body size | 16 u64 XXH3_64 of the body, seeded with that of bytes 0..15 |
//   24 body
//
// Integers are little-endian; the file ends with the body. Thread safety: plain functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cachestore/io/file.h"

namespace kvist {

struct SealedKind {
  std::string_view magic;  // 8 characters
  std::uint32_t version = 1;
};

// More than any of them needs: a namespace has seven strings of at most 4 KiB.
inline constexpr std::size_t kSealedBodyBytesMax = std::size_t{64} << 10;

// Durable, and all or nothing (ReplaceFile).
absl::Status WriteSealedFile(FileSystem& fs, const std::string& path, const SealedKind& kind, std::string_view body);

// The body. NotFound; DataLoss: damaged, cut or something else; FailedPrecondition: whole, but of a later version.
absl::StatusOr<std::string> ReadSealedFile(FileSystem& fs, const std::string& path, const SealedKind& kind);

}  // namespace kvist
