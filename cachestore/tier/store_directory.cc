#include "cachestore/tier/store_directory.h"

#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "fmt/format.h"
#include "spdlog/spdlog.h"

namespace kvist {
namespace {

constexpr std::string_view kFormatPrefix = "kvist store, format ";
constexpr std::size_t kFormatBytesMax = 256;
// What a store's creation makes, FORMAT aside.
constexpr std::array<std::string_view, 4> kOwnNames = {"LOCK", "FORMAT.tmp", "index", "segments"};
constexpr std::string_view kSegmentPrefix = "seg-";
// Besides segments: the index, sockets, logs.
constexpr std::uint64_t kOtherFiles = 512;

// True: of our version; false: absent.
absl::StatusOr<bool> CheckFormat(FileSystem& fs, const std::string& path) {
  const std::string file = path + "/FORMAT";
  const absl::StatusOr<std::string> text = ReadSmallFile(fs, file, kFormatBytesMax);
  if (absl::IsNotFound(text.status())) return false;
  if (!text.ok()) return text.status();
  if (*text == fmt::format("{}{}\n", kFormatPrefix, kStoreFormatVersion)) return true;
  const std::string found = text->starts_with(kFormatPrefix) ? text->substr(kFormatPrefix.size()) : *text;
  return absl::FailedPreconditionError(fmt::format(
      "{} is a store of format version \"{}\", this program reads version {}; nothing was changed: use the program that "
      "wrote it, or choose another directory",
      path, found.substr(0, found.find('\n')), kStoreFormatVersion));
}

absl::Status CheckNothingForeign(FileSystem& fs, const std::string& path) {
  absl::StatusOr<std::vector<std::string>> names = fs.List(path);
  if (!names.ok()) return names.status();
  for (const std::string& name : *names) {
    if (std::find(kOwnNames.begin(), kOwnNames.end(), name) != kOwnNames.end()) continue;
    return absl::FailedPreconditionError(
        fmt::format("{} is not a store and not empty (it holds {}); choose an empty directory", path, name));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<StoreDirectory> EnterStoreDirectory(FileSystem& fs, const std::string& path) {
  if (path.empty()) return absl::InvalidArgumentError("the store directory is not set; name one");
  if (absl::Status s = fs.CreateDirectory(path); !s.ok()) return s;
  absl::StatusOr<bool> exists = CheckFormat(fs, path);
  if (!exists.ok()) return exists.status();
  if (!*exists) {
    if (absl::Status s = CheckNothingForeign(fs, path); !s.ok()) return s;
  }
  StoreDirectory directory{path, nullptr};
  absl::StatusOr<std::unique_ptr<FileLock>> lock = fs.Lock(path + "/LOCK");
  if (!lock.ok()) return lock.status();
  directory.lock = *std::move(lock);
  // Another process may have made it between the look and the lock.
  if (exists = CheckFormat(fs, path); !exists.ok()) return exists.status();
  for (const std::string& part : {directory.index(), directory.segments()}) {
    if (absl::Status s = fs.CreateDirectory(part); !s.ok()) return s;
  }
  return directory;
}

absl::Status FinishStoreDirectory(FileSystem& fs, const StoreDirectory& directory) {
  absl::StatusOr<bool> exists = CheckFormat(fs, directory.path);
  if (!exists.ok()) return exists.status();
  if (*exists) return absl::OkStatus();
  return ReplaceFile(fs, directory.path + "/FORMAT", fmt::format("{}{}\n", kFormatPrefix, kStoreFormatVersion));
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
    spdlog::warn("the store may need {} open files, the limit is {}: raise it (ulimit -n, LimitNOFILE) or the segment size",
                 files + kOtherFiles, limit.rlim_cur);
  }
}

}  // namespace kvist
