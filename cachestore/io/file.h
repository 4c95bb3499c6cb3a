// The file seam: all of the store's own files go through it, so that tests can inject faults (fault_file_system.h).
// PosixFileSystem is the real one.
//
// Thread safety: FileSystem and File may be used from any thread; concurrent ReadAt/WriteAt of one File are fine.
// Ownership: whatever a FileSystem hands out must not outlive it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cachestore/io/async_io.h"

namespace kvist {

class File {
 public:
  virtual ~File() = default;

  // One attempt at `offset`; may transfer less than asked (ReadFull and WriteFull do not). 0 bytes read: end of file.
  // A direct file needs offset, length and memory aligned to kDirectAlignment.
  virtual absl::StatusOr<std::size_t> ReadAt(std::uint64_t offset, std::span<std::byte> into) = 0;
  virtual absl::StatusOr<std::size_t> WriteAt(std::uint64_t offset, std::span<const std::byte> from) = 0;

  // fdatasync. After a failure what was written since the last success is unknown, whatever a later call says.
  virtual absl::Status SyncData() = 0;

  // Reserves the file's blocks (fallocate). Unimplemented where the file system cannot.
  virtual absl::Status Allocate(std::uint64_t bytes) = 0;
  // Sets the size without reserving anything.
  virtual absl::Status Resize(std::uint64_t bytes) = 0;
  virtual absl::StatusOr<std::uint64_t> Size() const = 0;

  virtual int fd() const = 0;
  virtual const std::string& path() const = 0;
};

// Offset, length and memory of direct transfers: covers every device we know of; checked against STATX_DIOALIGN.
inline constexpr std::size_t kDirectAlignment = 4096;

// A held lock on a file; released on destruction and when the process dies.
class FileLock {
 public:
  virtual ~FileLock() = default;
};

struct FileInfo {
  std::uint64_t bytes = 0;
  absl::Time modified;
};

struct OpenOptions {
  bool create = false;  // create if missing (mode 0600)
  bool direct = false;  // O_DIRECT; refused with InvalidArgument or Unimplemented where the file system cannot
};

class FileSystem {
 public:
  virtual ~FileSystem() = default;

  // Opens for reading and writing.
  virtual absl::StatusOr<std::unique_ptr<File>> Open(const std::string& path, const OpenOptions& options) = 0;

  // Creates a directory and its missing parents (mode 0700). OK if it is there; FailedPrecondition if the path is
  // something else.
  virtual absl::Status CreateDirectory(const std::string& path) = 0;
  // Names in a directory, sorted, without "." and "..".
  virtual absl::StatusOr<std::vector<std::string>> List(const std::string& directory) = 0;
  virtual absl::StatusOr<bool> Exists(const std::string& path) = 0;
  virtual absl::StatusOr<FileInfo> Stat(const std::string& path) = 0;
  // Sets the modification time, in whole seconds; the shared folder keeps an object's expiry there.
  virtual absl::Status SetModified(const std::string& path, absl::Time modified) = 0;
  virtual absl::Status Rename(const std::string& from, const std::string& to) = 0;
  virtual absl::Status Remove(const std::string& path) = 0;
  virtual absl::Status RemoveDirectory(const std::string& path) = 0;  // an empty one only
  // A directory entry is durable only after this.
  virtual absl::Status SyncDirectory(const std::string& directory) = 0;
  // Bytes that this user may still allocate there.
  virtual absl::StatusOr<std::uint64_t> FreeBytes(const std::string& directory) = 0;

  // Creates and locks `path` (flock) and writes this process's pid into it. FailedPrecondition, naming the holder's
  // pid, while another holds it.
  virtual absl::StatusOr<std::unique_ptr<FileLock>> Lock(const std::string& path) = 0;

  // An engine for asynchronous transfers on files of this file system.
  virtual absl::StatusOr<std::unique_ptr<AsyncIo>> NewAsyncIo(const AsyncIoOptions& options) = 0;
};

std::unique_ptr<FileSystem> NewPosixFileSystem();

// Transfers all of it, whatever the pieces. OutOfRange: the file ends before.
absl::Status ReadFull(File& file, std::uint64_t offset, std::span<std::byte> into);
absl::Status WriteFull(File& file, std::uint64_t offset, std::span<const std::byte> from);

// Small text files (FORMAT). Reads at most `limit_bytes`; longer is FailedPrecondition.
absl::StatusOr<std::string> ReadSmallFile(FileSystem& fs, const std::string& path, std::size_t limit_bytes);
// Durable, and all or nothing: written beside `path`, synced, renamed over it, directory synced.
absl::Status ReplaceFile(FileSystem& fs, const std::string& path, std::string_view contents);

}  // namespace kvist
