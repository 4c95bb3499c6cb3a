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

inline constexpr std::uint32_t kStoreFormatVersion = 1;

struct StoreDirectory {
  std::string path;
  std::unique_ptr<FileLock> lock;
  std::string index() const { return path + "/index"; }
  std::string segments() const { return path + "/segments"; }
};

// Creates or enters the directory and locks it. A directory of another format version is refused before anything in
// it is touched; one that is neither empty nor a store, too. One whose creation was interrupted is completed: FORMAT
// is written last (FinishStoreDirectory), and without it there is nothing to lose.
absl::StatusOr<StoreDirectory> EnterStoreDirectory(FileSystem& fs, const std::string& path);
absl::Status FinishStoreDirectory(FileSystem& fs, const StoreDirectory& directory);

std::string SegmentFileName(std::uint64_t id);
std::optional<std::uint64_t> ParseSegmentFileName(std::string_view name);

// Each segment is an open file: raises this process's soft limit towards its hard limit if `files` would not fit.
void RaiseOpenFilesLimit(std::uint64_t files);

}  // namespace kvist
