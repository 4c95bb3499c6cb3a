// Preallocated files for block data: O_DIRECT and fallocate where the file system has them, plain where it refuses
// (tmpfs, NFS, overlay, ZFS). What is refused is found once, named in the log once, and not tried again.
// Thread safety: any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "cachestore/io/file.h"

namespace kvist {

class DataFiles {
 public:
  // `fs` must outlive this.
  explicit DataFiles(FileSystem* fs) : fs_(*fs) {}

  // Finds out whether direct transfers work in `directory`, by making one (a file system may accept the flag and
  // refuse the transfer). Errors only for what also keeps plain files from working.
  absl::Status Probe(const std::string& directory);

  // Creates a file of `bytes`, its blocks reserved where possible; leaves nothing behind on failure. The caller
  // syncs the directory.
  absl::StatusOr<std::unique_ptr<File>> Create(const std::string& path, std::uint64_t bytes);
  absl::StatusOr<std::unique_ptr<File>> Open(const std::string& path);

  bool direct() const;
  bool preallocates() const;

 private:
  absl::Status Reserve(File& file, std::uint64_t bytes);
  void RefuseDirect(const absl::Status& reason);

  FileSystem& fs_;
  mutable absl::Mutex mutex_;
  bool direct_ ABSL_GUARDED_BY(mutex_) = true;
  bool preallocates_ ABSL_GUARDED_BY(mutex_) = true;
};

}  // namespace kvist
