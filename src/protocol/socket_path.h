// Where the daemon's socket is, and socket addresses.
#pragma once

#include <sys/un.h>

#include <string>

#include "absl/status/statusor.h"

namespace kvist::protocol {

// Where kvistd keeps its socket unless told otherwise: $XDG_RUNTIME_DIR if that names a directory, else
// /tmp/kvist-UID. No trailing slash.
std::string DefaultRuntimeDirectory();

// DefaultRuntimeDirectory() + "/kvistd.sock".
std::string DefaultSocketPath();

// InvalidArgument if the path is empty or longer than a UNIX socket's address can be.
absl::StatusOr<sockaddr_un> UnixAddress(const std::string& path);

}  // namespace kvist::protocol
