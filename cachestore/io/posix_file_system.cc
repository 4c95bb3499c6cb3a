// The real FileSystem: Linux system calls, each failure a status that names the path.
#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "cachestore/io/errno_status.h"
#include "cachestore/io/file.h"
#include "fmt/format.h"

namespace kvist {
namespace {

// Repeats a system call that a signal interrupted.
template <typename Call>
auto Uninterrupted(Call call) {
  decltype(call()) result;
  do {
    result = call();
  } while (result < 0 && errno == EINTR);
  return result;
}

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

class PosixFile final : public File {
 public:
  PosixFile(std::string path, Descriptor fd) : path_(std::move(path)), fd_(std::move(fd)) {}

  absl::StatusOr<std::size_t> ReadAt(std::uint64_t offset, std::span<std::byte> into) override {
    const ssize_t n =
        Uninterrupted([&] { return ::pread(fd(), into.data(), into.size(), static_cast<off_t>(offset)); });
    if (n < 0) return Fail("read");
    return static_cast<std::size_t>(n);
  }

  absl::StatusOr<std::size_t> WriteAt(std::uint64_t offset, std::span<const std::byte> from) override {
    const ssize_t n =
        Uninterrupted([&] { return ::pwrite(fd(), from.data(), from.size(), static_cast<off_t>(offset)); });
    if (n < 0) return Fail("write");
    return static_cast<std::size_t>(n);
  }

  absl::Status SyncData() override {
    // Not repeated on EINTR: the error state of the pages may have been consumed.
    if (::fdatasync(fd()) != 0) return Fail("fdatasync");
    return absl::OkStatus();
  }

  absl::Status Allocate(std::uint64_t bytes) override {
    // Not posix_fallocate: glibc emulates it by writing where the file system refuses.
    if (Uninterrupted([&] { return ::fallocate(fd(), 0, 0, static_cast<off_t>(bytes)); }) != 0) {
      return Fail(fmt::format("fallocate {} bytes for", bytes));
    }
    return absl::OkStatus();
  }

  absl::Status Resize(std::uint64_t bytes) override {
    if (Uninterrupted([&] { return ::ftruncate(fd(), static_cast<off_t>(bytes)); }) != 0) {
      return Fail(fmt::format("resize to {} bytes", bytes));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::uint64_t> Size() const override {
    struct stat st;
    if (::fstat(fd(), &st) != 0) return Fail("stat");
    return static_cast<std::uint64_t>(st.st_size);
  }

  int fd() const override { return fd_.get(); }
  const std::string& path() const override { return path_; }

 private:
  absl::Status Fail(std::string_view what) const { return ErrnoStatus(errno, fmt::format("{} {}", what, path_)); }

  std::string path_;
  Descriptor fd_;
};

class PosixFileLock final : public FileLock {
 public:
  explicit PosixFileLock(Descriptor fd) : fd_(std::move(fd)) {}

 private:
  Descriptor fd_;  // closing it releases the lock; the file stays: removing it would race with the next holder
};

// Whether direct transfers of kDirectAlignment are possible. Kernels before 6.1 cannot tell: then open's word counts.
bool DirectAlignmentFits(int fd) {
#ifdef STATX_DIOALIGN
  struct statx st;
  std::memset(&st, 0, sizeof st);
  if (::statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &st) != 0 || (st.stx_mask & STATX_DIOALIGN) == 0) return true;
  return st.stx_dio_offset_align != 0 && st.stx_dio_offset_align <= kDirectAlignment &&
         st.stx_dio_mem_align <= kDirectAlignment;
#else
  return fd >= 0;
#endif
}

class PosixFileSystem final : public FileSystem {
 public:
  absl::StatusOr<std::unique_ptr<File>> Open(const std::string& path, const OpenOptions& options) override {
    const int flags = O_RDWR | O_CLOEXEC | (options.create ? O_CREAT : 0) | (options.direct ? O_DIRECT : 0);
    Descriptor fd(Uninterrupted([&] { return ::open(path.c_str(), flags, 0600); }));
    if (fd.get() < 0) return ErrnoStatus(errno, fmt::format("open {}", path));
    if (options.direct && !DirectAlignmentFits(fd.get())) {
      return absl::UnimplementedError(fmt::format("open {}: no direct I/O in {}-byte units", path, kDirectAlignment));
    }
    return std::make_unique<PosixFile>(path, std::move(fd));
  }

  absl::Status CreateDirectory(const std::string& path) override {
    for (std::size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
      const std::string part = path.substr(0, end);
      if (::mkdir(part.c_str(), 0700) != 0 && errno != EEXIST) {
        const int error = errno;
        // Some file systems say EROFS or EACCES before they say that it is there.
        if (!IsDirectory(part)) return ErrnoStatus(error, fmt::format("create directory {}", part));
      }
      if (!IsDirectory(part)) return ErrnoStatus(ENOTDIR, fmt::format("{} is not a directory", part));
      if (end == std::string::npos) return absl::OkStatus();
    }
  }

  absl::StatusOr<std::vector<std::string>> List(const std::string& directory) override {
    std::unique_ptr<DIR, int (*)(DIR*)> dir(::opendir(directory.c_str()), &::closedir);
    if (dir == nullptr) return ErrnoStatus(errno, fmt::format("list {}", directory));
    std::vector<std::string> names;
    errno = 0;
    while (const dirent* entry = ::readdir(dir.get())) {
      const std::string_view name = entry->d_name;
      if (name != "." && name != "..") names.emplace_back(name);
      errno = 0;
    }
    if (errno != 0) return ErrnoStatus(errno, fmt::format("list {}", directory));
    std::sort(names.begin(), names.end());
    return names;
  }

  absl::StatusOr<bool> Exists(const std::string& path) override {
    if (::access(path.c_str(), F_OK) == 0) return true;
    if (errno == ENOENT) return false;
    return ErrnoStatus(errno, fmt::format("look up {}", path));
  }

  absl::StatusOr<FileInfo> Stat(const std::string& path) override {
    struct stat st;
    if (::stat(path.c_str(), &st) != 0) return ErrnoStatus(errno, fmt::format("look up {}", path));
    return FileInfo{static_cast<std::uint64_t>(st.st_size), absl::TimeFromTimespec(st.st_mtim)};
  }

  absl::Status SetModified(const std::string& path, absl::Time modified) override {
    timespec times[2] = {{0, UTIME_OMIT}, {static_cast<time_t>(absl::ToUnixSeconds(modified)), 0}};
    if (::utimensat(AT_FDCWD, path.c_str(), times, 0) != 0)
      return ErrnoStatus(errno, fmt::format("set time of {}", path));
    return absl::OkStatus();
  }

  absl::Status Rename(const std::string& from, const std::string& to) override {
    if (::rename(from.c_str(), to.c_str()) != 0) return ErrnoStatus(errno, fmt::format("rename {} to {}", from, to));
    return absl::OkStatus();
  }

  absl::Status Remove(const std::string& path) override {
    if (::unlink(path.c_str()) != 0) return ErrnoStatus(errno, fmt::format("remove {}", path));
    return absl::OkStatus();
  }

  absl::Status RemoveDirectory(const std::string& path) override {
    if (::rmdir(path.c_str()) != 0) return ErrnoStatus(errno, fmt::format("remove directory {}", path));
    return absl::OkStatus();
  }

  absl::Status SyncDirectory(const std::string& directory) override {
    Descriptor fd(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (fd.get() < 0) return ErrnoStatus(errno, fmt::format("open {}", directory));
    // EINVAL: a file system whose directories cannot be synced.
    if (::fsync(fd.get()) != 0 && errno != EINVAL) return ErrnoStatus(errno, fmt::format("fsync {}", directory));
    return absl::OkStatus();
  }

  absl::StatusOr<std::uint64_t> FreeBytes(const std::string& directory) override {
    struct statvfs st;
    if (::statvfs(directory.c_str(), &st) != 0) return ErrnoStatus(errno, fmt::format("statvfs {}", directory));
    return static_cast<std::uint64_t>(st.f_bavail) * st.f_frsize;
  }

  absl::StatusOr<std::unique_ptr<FileLock>> Lock(const std::string& path) override {
    Descriptor fd(Uninterrupted([&] { return ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600); }));
    if (fd.get() < 0) return ErrnoStatus(errno, fmt::format("open {}", path));
    if (Uninterrupted([&] { return ::flock(fd.get(), LOCK_EX | LOCK_NB); }) != 0) {
      if (errno != EWOULDBLOCK) return ErrnoStatus(errno, fmt::format("lock {}", path));
      return absl::FailedPreconditionError(
          fmt::format("{} is locked: the store is in use by process {}; stop it or choose another directory", path,
                      HolderPid(fd.get())));
    }
    const std::string pid = fmt::format("{}\n", ::getpid());
    // The pid is for people; a full disk must not keep the store from opening.
    if (::ftruncate(fd.get(), 0) != 0 || ::pwrite(fd.get(), pid.data(), pid.size(), 0) < 0) errno = 0;
    return std::make_unique<PosixFileLock>(std::move(fd));
  }

  absl::StatusOr<std::unique_ptr<AsyncIo>> NewAsyncIo(const AsyncIoOptions& options) override {
    return kvist::NewAsyncIo(options);
  }

 private:
  static bool IsDirectory(const std::string& path) {
    struct stat st;
    return ::stat(path.c_str(), &st) == 0 && S_ISDIR(st.st_mode);
  }

  static std::string HolderPid(int fd) {
    std::array<char, 32> text{};
    const ssize_t n = ::pread(fd, text.data(), text.size() - 1, 0);
    std::string pid(text.data(), n > 0 ? static_cast<std::size_t>(n) : 0);
    pid.erase(std::remove_if(pid.begin(), pid.end(), [](char c) { return c < '0' || c > '9'; }), pid.end());
    return pid.empty() ? "unknown" : pid;
  }
};

}  // namespace

std::unique_ptr<FileSystem> NewPosixFileSystem() { return std::make_unique<PosixFileSystem>(); }

}  // namespace kvist
