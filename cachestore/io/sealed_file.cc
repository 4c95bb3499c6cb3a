#include "cachestore/io/sealed_file.h"

#include <bit>
#include <cassert>
#include <cstring>

#include "fmt/format.h"
#include "xxhash.h"

namespace kvist {
namespace {

static_assert(std::endian::native == std::endian::little,
              "sealed files are little-endian; this host needs conversions");

constexpr std::size_t kMagicBytes = 8;
constexpr std::size_t kSizeAt = 12;
constexpr std::size_t kChecksumAt = 16;
constexpr std::size_t kBodyAt = 24;

std::uint64_t Checksum(std::string_view front, std::string_view body) {
  return XXH3_64bits_withSeed(body.data(), body.size(), XXH3_64bits(front.data(), front.size()));
}

template <typename T>
T Get(std::string_view bytes, std::size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

template <typename T>
void Append(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

}  // namespace

absl::Status WriteSealedFile(FileSystem& fs, const std::string& path, const SealedKind& kind, std::string_view body) {
  assert(kind.magic.size() == kMagicBytes && body.size() <= kSealedBodyBytesMax);
  std::string bytes(kind.magic);
  Append(bytes, kind.version);
  Append(bytes, static_cast<std::uint32_t>(body.size()));
  Append(bytes, Checksum(bytes, body));
  bytes.append(body);
  return ReplaceFile(fs, path, bytes);
}

absl::StatusOr<std::string> ReadSealedFile(FileSystem& fs, const std::string& path, const SealedKind& kind) {
  absl::StatusOr<std::string> bytes = ReadSmallFile(fs, path, kBodyAt + kSealedBodyBytesMax);
  if (absl::IsFailedPrecondition(bytes.status())) return absl::DataLossError(std::string(bytes.status().message()));
  if (!bytes.ok()) return bytes.status();
  const std::string_view all = *bytes;
  if (all.size() < kBodyAt) return absl::DataLossError(fmt::format("{} is cut: {} bytes", path, all.size()));
  const std::string_view body = all.substr(kBodyAt);
  if (all.substr(0, kMagicBytes) != kind.magic || Get<std::uint32_t>(all, kSizeAt) != body.size() ||
      Get<std::uint64_t>(all, kChecksumAt) != Checksum(all.substr(0, kChecksumAt), body)) {
    return absl::DataLossError(fmt::format("{} is damaged: its checksum does not match", path));
  }
  if (const auto version = Get<std::uint32_t>(all, kMagicBytes); version != kind.version) {
    return absl::FailedPreconditionError(fmt::format(
        "{} has version {}, this program reads {}; use the program that wrote it", path, version, kind.version));
  }
  return std::string(body);
}

}  // namespace kvist
