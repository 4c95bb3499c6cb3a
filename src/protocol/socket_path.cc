#include "src/protocol/socket_path.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "fmt/format.h"

namespace kvist::protocol {

std::string DefaultRuntimeDirectory() {
  const char* xdg = std::getenv("XDG_RUNTIME_DIR");
  struct stat info {};
  if (xdg != nullptr && xdg[0] == '/' && ::stat(xdg, &info) == 0 && S_ISDIR(info.st_mode)) return xdg;
  return fmt::format("/tmp/kvist-{}", ::geteuid());
}

std::string DefaultSocketPath() { return DefaultRuntimeDirectory() + "/kvistd.sock"; }

absl::StatusOr<sockaddr_un> UnixAddress(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path)) {
    return absl::InvalidArgumentError(
        fmt::format("socket path \"{}\" has {} bytes; 1 to {} are possible: choose a "
                    "shorter one",
                    path, path.size(), sizeof(address.sun_path) - 1));
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

}  // namespace kvist::protocol
