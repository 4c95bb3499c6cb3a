// The store directory: who may open it and what must be there. See docs/format.md.
// Thread safety: plain functions.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "cachestore/io/file.h"

namespace kvist {

inline constexpr std::uint32_t kStoreFormatVersion = 2;

struct StoreDirectory {
  std::string path;
  std::unique_ptr<FileLock> lock;
  std::uint32_t format = 0;  // as FORMAT said at entering; 0: there was none
  bool complete = false;     // the store was whole once, so its index must be there
  std::string index() const { return path + "/index"; }
  std::string segments() const { return path + "/segments"; }
  std::string namespaces() const { return path + "/namespaces"; }
  std::string secret() const { return path + "/SECRET"; }
  std::string removals() const { return path + "/REMOVALS"; }
  std::string clean() const { return path + "/CLEAN"; }
};

// The version that FORMAT states; 0: there is no FORMAT. FailedPrecondition: of a version that this program does not
// read, or not a store's; DataLoss: it was ours, and is damaged.
absl::StatusOr<std::uint32_t> ReadFormat(FileSystem& fs, const std::string& path);
absl::Status WriteFormat(FileSystem& fs, const std::string& path);

// Whether a store directory may hold it, temporary files aside.
bool IsStoreFileName(std::string_view name);

// Creates or enters the directory and locks it. A directory of an unknown format version is refused before anything in
// it is touched; one that is neither empty nor a store, too. One whose creation was interrupted is completed: FORMAT
// is written last (FinishStoreDirectory), also when a store of format 1 is upgraded.
absl::StatusOr<StoreDirectory> EnterStoreDirectory(FileSystem& fs, const std::string& path);
absl::Status FinishStoreDirectory(FileSystem& fs, const StoreDirectory& directory);

std::string SegmentFileName(std::uint64_t id);
std::optional<std::uint64_t> ParseSegmentFileName(std::string_view name);

// Each segment is an open file: raises this process's soft limit towards its hard limit if `files` would not fit.
void RaiseOpenFilesLimit(std::uint64_t files);

}  // namespace kvist
