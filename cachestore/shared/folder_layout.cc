#include "cachestore/shared/folder_layout.h"

#include <charconv>

#include "fmt/format.h"

namespace kvist {
namespace {

constexpr std::string_view kNever = "never";
constexpr std::size_t kBucketDigits = 12;  // enough for kNeverUnixSeconds

}  // namespace

std::string BucketName(absl::Time expires) {
  const std::int64_t width = absl::ToInt64Seconds(kBucketWidth);
  const std::int64_t seconds = expires <= absl::UnixEpoch() ? 0 : absl::ToUnixSeconds(expires - absl::Nanoseconds(1));
  if (seconds >= kNeverUnixSeconds - width) return std::string(kNever);
  return fmt::format("{:012}", (seconds / width + 1) * width);
}

std::optional<absl::Time> ParseBucketName(std::string_view name) {
  if (name == kNever) return absl::InfiniteFuture();
  if (name.size() != kBucketDigits) return std::nullopt;
  std::int64_t seconds = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), seconds);
  if (error != std::errc() || end != name.data() + name.size() || seconds < 0) return std::nullopt;
  return absl::FromUnixSeconds(seconds);
}

std::string NamespacePath(const NamespaceId& ns) { return ns.ToHex(); }

std::string ObjectDirectory(const ObjectName& name) {
  return fmt::format("{}/{}", NamespacePath(name.ns), name.key.ToHex().substr(0, 2));
}

std::string ObjectPath(const ObjectName& name) { return fmt::format("{}/{}", ObjectDirectory(name), name.key.ToHex()); }

}  // namespace kvist
