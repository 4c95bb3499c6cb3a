// Endpoint: the daemon's place in the file system: a UNIX socket and, beside it, the lock that decides who may have it.
//
// A stale socket file (its daemon was killed) is replaced; a live one, and anything that is not a socket, is refused
// and never touched. Two simultaneous starts cannot both win: probing and binding happen under the lock, which is held
// until destruction.
// Not thread-safe.
#pragma once

#include <sys/types.h>

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/protocol/descriptor.h"

namespace kvist::daemon {

class Endpoint {
 public:
  // Makes the socket's directory (mode 0700) if missing, takes the lock and checks what lies at `path`.
  // FailedPrecondition: someone serves there, or something is there that is no socket.
  static absl::StatusOr<Endpoint> Reserve(const std::string& path);

  Endpoint(Endpoint&&) = default;
  Endpoint& operator=(Endpoint&&) = delete;
  ~Endpoint();

  // Binds (mode 0600) and listens; non-blocking.
  absl::StatusOr<protocol::Descriptor> Listen();

  // Removes the socket file, if it is still the one bound here. The lock stays held.
  void Remove();

  const std::string& path() const { return path_; }

 private:
  Endpoint(std::string path, protocol::Descriptor lock) : path_(std::move(path)), lock_(std::move(lock)) {}

  std::string path_;
  protocol::Descriptor lock_;
  bool bound_ = false;
  dev_t device_ = 0;
  ino_t inode_ = 0;
};

}  // namespace kvist::daemon
