#include "cachestore/tier/store_directory.h"

#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "cachestore/key/digest.h"
#include "fmt/format.h"
#include "spdlog/spdlog.h"
#include "xxhash.h"

namespace kvist {
namespace {

constexpr std::string_view kFormatPrefix = "kvist store, format ";
constexpr std::size_t kFormatBytesMax = 256;
constexpr std::string_view kCheckPrefix = "check ";
constexpr std::array<std::string_view, 8> kOwnNames = {"FORMAT", "LOCK",     "SECRET", "REMOVALS",
                                                       "CLEAN",  "segments", "index",  "namespaces"};
constexpr std::string_view kTemporarySuffix = ".tmp";
constexpr std::string_view kSegmentPrefix = "seg-";
// Besides segments: the index, sockets, logs.
constexpr std::uint64_t kOtherFiles = 512;

// The first line, and the second that proves it: a changed digit must not pass for another version.
std::string FormatText(std::uint32_t version) {
  const std::string line = fmt::format("{}{}\n", kFormatPrefix, version);
  return fmt::format("{}{}{:016x}\n", line, kCheckPrefix, XXH3_64bits(line.data(), line.size()));
}

absl::Status CheckNothingForeign(FileSystem& fs, const std::string& path) {
  absl::StatusOr<std::vector<std::string>> names = fs.List(path);
  if (!names.ok()) return names.status();
  for (const std::string& name : *names) {
    std::string_view bare = name;
    if (bare.ends_with(kTemporarySuffix)) bare.remove_suffix(kTemporarySuffix.size());
    if (IsStoreFileName(bare)) continue;
    return absl::FailedPreconditionError(
        fmt::format("{} is not a store and not empty (it holds {}); choose an empty directory", path, name));
  }
  return absl::OkStatus();
}

// What a replacement that a crash interrupted left. On a best effort: it only takes space.
void RemoveTemporaries(FileSystem& fs, const std::string& folder) {
  const absl::StatusOr<std::vector<std::string>> names = fs.List(folder);
  if (!names.ok()) return;
  for (const std::string& name : *names) {
    if (!name.ends_with(kTemporarySuffix)) continue;
    const std::string_view bare = std::string_view(name).substr(0, name.size() - kTemporarySuffix.size());
    if (IsStoreFileName(bare) || NamespaceId::FromHex(bare)) (void)fs.Remove(folder + "/" + name);
  }
}

}  // namespace

bool IsStoreFileName(std::string_view name) {
  return std::find(kOwnNames.begin(), kOwnNames.end(), name) != kOwnNames.end();
}

absl::StatusOr<std::uint32_t> ReadFormat(FileSystem& fs, const std::string& path) {
  const absl::StatusOr<std::string> text = ReadSmallFile(fs, path + "/FORMAT", kFormatBytesMax);
  if (absl::IsNotFound(text.status())) return 0;
  if (!text.ok()) return text.status();
  if (*text == FormatText(kStoreFormatVersion)) return kStoreFormatVersion;
  // Format 1 had the first line only.
  if (*text == fmt::format("{}1\n", kFormatPrefix)) return 1;
  const std::size_t line_end = text->find('\n');
  bool versioned = text->starts_with(kFormatPrefix) && line_end != std::string::npos;
  std::uint32_t version = 0;
  if (versioned) {
    const std::string_view digits = std::string_view(*text).substr(0, line_end).substr(kFormatPrefix.size());
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), version);
    versioned = error == std::errc() && end == digits.data() + digits.size();
  }
  const bool whole =
      versioned && version != kStoreFormatVersion && (text->size() == line_end + 1 || *text == FormatText(version));
  const absl::StatusOr<bool> ours = fs.Exists(path + "/SECRET");
  if (!whole && ours.ok() && *ours) {
    return absl::DataLossError(
        fmt::format("{}/FORMAT is damaged; `kvist fsck {} --repair` checks the rest and restores it", path, path));
  }
  const std::string found = text->starts_with(kFormatPrefix) ? text->substr(kFormatPrefix.size()) : *text;
  return absl::FailedPreconditionError(
      fmt::format("{} is a store of format version \"{}\", this program reads version {}; nothing was changed: use the "
                  "program that "
                  "wrote it, or choose another directory",
                  path, found.substr(0, found.find('\n')), kStoreFormatVersion));
}

absl::Status WriteFormat(FileSystem& fs, const std::string& path) {
  return ReplaceFile(fs, path + "/FORMAT", FormatText(kStoreFormatVersion));
}

absl::StatusOr<StoreDirectory> EnterStoreDirectory(FileSystem& fs, const std::string& path) {
  if (path.empty()) return absl::InvalidArgumentError("the store directory is not set; name one");
  if (absl::Status s = fs.CreateDirectory(path); !s.ok()) return s;
  absl::StatusOr<std::uint32_t> format = ReadFormat(fs, path);
  if (!format.ok()) return format.status();
  if (*format == 0) {
    if (absl::Status s = CheckNothingForeign(fs, path); !s.ok()) return s;
  }
  StoreDirectory directory;
  directory.path = path;
  absl::StatusOr<std::unique_ptr<FileLock>> lock = fs.Lock(path + "/LOCK");
  if (!lock.ok()) return lock.status();
  directory.lock = *std::move(lock);
  // Another process may have made it between the look and the lock.
  if (format = ReadFormat(fs, path); !format.ok()) return format.status();
  directory.format = *format;
  // REMOVALS comes after FORMAT: with the one there and the other gone, FORMAT was lost, not late.
  const absl::StatusOr<bool> removals = fs.Exists(directory.removals());
  if (!removals.ok()) return removals.status();
  directory.complete = *format != 0 || *removals;
  for (const std::string& part : {directory.index(), directory.segments(), directory.namespaces()}) {
    if (absl::Status s = fs.CreateDirectory(part); !s.ok()) return s;
  }
  RemoveTemporaries(fs, path);
  RemoveTemporaries(fs, directory.namespaces());
  return directory;
}

absl::Status FinishStoreDirectory(FileSystem& fs, const StoreDirectory& directory) {
  return directory.format == kStoreFormatVersion ? absl::OkStatus() : WriteFormat(fs, directory.path);
}

std::string SegmentFileName(std::uint64_t id) { return fmt::format("{}{:08}", kSegmentPrefix, id); }

std::optional<std::uint64_t> ParseSegmentFileName(std::string_view name) {
  if (!name.starts_with(kSegmentPrefix)) return std::nullopt;
  const std::string_view digits = name.substr(kSegmentPrefix.size());
  std::uint64_t id = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), id);
  if (error != std::errc() || SegmentFileName(id) != name) return std::nullopt;
  return id;
}

void RaiseOpenFilesLimit(std::uint64_t files) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= files + kOtherFiles) return;
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, files + kOtherFiles);
  if (::setrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur < files + kOtherFiles) {
    spdlog::warn(
        "the store may need {} open files, the limit is {}: raise it (ulimit -n, LimitNOFILE) or the segment size",
        files + kOtherFiles, limit.rlim_cur);
  }
}

}  // namespace kvist
