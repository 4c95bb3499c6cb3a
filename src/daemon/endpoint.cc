#include "src/daemon/endpoint.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "fmt/format.h"
#include "src/protocol/socket_path.h"

namespace kvist::daemon {
namespace {

// Connections waiting to be accepted; beyond it connect() says so at once.
constexpr int kBacklog = 128;

absl::Status PrepareDirectory(const std::string& socket_path) {
  namespace fs = std::filesystem;
  const fs::path directory = fs::path(socket_path).parent_path();
  if (directory.empty()) return absl::OkStatus();
  std::error_code error;
  if (!fs::exists(directory, error)) {
    fs::create_directories(directory.parent_path(), error);
    if (::mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST) {
      return protocol::ErrnoStatus(errno, fmt::format("making the socket's directory {}", directory.string()));
    }
  }
  struct stat info {};
  if (::stat(directory.c_str(), &info) != 0) {
    return protocol::ErrnoStatus(errno, fmt::format("the socket's directory {}", directory.string()));
  }
  // Whoever owns the directory could put another socket in our place.
  if (info.st_uid != ::geteuid() && info.st_uid != 0) {
    return absl::FailedPreconditionError(
        fmt::format("the socket's directory {} belongs to uid {}: set daemon.socket to a path in a directory of yours",
                    directory.string(), info.st_uid));
  }
  return absl::OkStatus();
}

// The lock file is removed at the end, so the one just opened may be gone from the directory: then it locks nothing.
absl::StatusOr<protocol::Descriptor> TakeLock(const std::string& lock_path, const std::string& socket_path) {
  while (true) {
    protocol::Descriptor lock(::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!lock.valid()) return protocol::ErrnoStatus(errno, fmt::format("opening the lock file {}", lock_path));
    if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK) return protocol::ErrnoStatus(errno, fmt::format("locking {}", lock_path));
      return absl::FailedPreconditionError(fmt::format(
          "another kvistd serves, or is starting, on {}: stop it, or set daemon.socket to another path", socket_path));
    }
    struct stat held = {};
    struct stat named = {};
    if (::fstat(lock.get(), &held) == 0 && ::lstat(lock_path.c_str(), &named) == 0 && held.st_ino == named.st_ino &&
        held.st_dev == named.st_dev) {
      return lock;
    }
  }
}

absl::Status ClearStaleSocket(const std::string& path) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) {
    return errno == ENOENT ? absl::OkStatus() : protocol::ErrnoStatus(errno, path);
  }
  if (!S_ISSOCK(info.st_mode)) {
    return absl::FailedPreconditionError(
        fmt::format("{} exists and is not a socket: move it away, or set daemon.socket to another path", path));
  }
  const auto address = protocol::UnixAddress(path);
  if (!address.ok()) return address.status();
  protocol::Descriptor probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!probe.valid()) return protocol::ErrnoStatus(errno, "making a socket");
  if (::connect(probe.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof(*address)) == 0 || errno == EAGAIN) {
    return absl::FailedPreconditionError(
        fmt::format("another program serves on {}: stop it, or set daemon.socket to another path", path));
  }
  if (errno != ECONNREFUSED) return protocol::ErrnoStatus(errno, fmt::format("probing the socket {}", path));
  if (::unlink(path.c_str()) != 0)
    return protocol::ErrnoStatus(errno, fmt::format("removing the stale socket {}", path));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Endpoint> Endpoint::Reserve(const std::string& path) {
  if (const auto address = protocol::UnixAddress(path); !address.ok()) return address.status();
  if (absl::Status status = PrepareDirectory(path); !status.ok()) return status;
  auto lock = TakeLock(path + ".lock", path);
  if (!lock.ok()) return lock.status();
  Endpoint endpoint(path, std::move(*lock));
  if (absl::Status status = ClearStaleSocket(path); !status.ok()) return status;
  return endpoint;
}

absl::StatusOr<protocol::Descriptor> Endpoint::Listen() {
  const auto address = protocol::UnixAddress(path_);
  if (!address.ok()) return address.status();
  protocol::Descriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) return protocol::ErrnoStatus(errno, "making a socket");
  // The mode of an unbound socket becomes its file's: at no moment can others connect.
  if (::fchmod(socket.get(), 0600) != 0 ||
      ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof(*address)) != 0) {
    return protocol::ErrnoStatus(errno, fmt::format("binding {}", path_));
  }
  struct stat info {};
  if (::lstat(path_.c_str(), &info) != 0) return protocol::ErrnoStatus(errno, path_);
  bound_ = true;
  device_ = info.st_dev;
  inode_ = info.st_ino;
  if (::chmod(path_.c_str(), 0600) != 0 || ::listen(socket.get(), kBacklog) != 0) {
    return protocol::ErrnoStatus(errno, fmt::format("listening on {}", path_));
  }
  return socket;
}

void Endpoint::Remove() {
  if (!bound_) return;
  bound_ = false;
  struct stat info {};
  if (::lstat(path_.c_str(), &info) == 0 && info.st_dev == device_ && info.st_ino == inode_) ::unlink(path_.c_str());
}

Endpoint::~Endpoint() {
  if (!lock_.valid()) return;  // moved from
  Remove();
  // Only an empty file can be a lock made here; unlinked while still held, so that nobody else's is.
  struct stat info {};
  const std::string lock_path = path_ + ".lock";
  if (::fstat(lock_.get(), &info) == 0 && info.st_size == 0) ::unlink(lock_path.c_str());
}

}  // namespace kvist::daemon
