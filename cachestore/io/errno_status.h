// errno as absl::Status, with the remedy where there is one.
// Thread safety: plain functions.
#pragma once

#include <string_view>

#include "absl/status/status.h"

namespace kvist {

// `what` says what was tried on which path, as in "open /var/lib/kvist/LOCK".
//   ENOSPC, EDQUOT                 ResourceExhausted      EACCES, EPERM, EROFS   PermissionDenied
//   ENOENT                         NotFound               EEXIST                 AlreadyExists
//   EOPNOTSUPP, ENOSYS             Unimplemented          EINVAL                 InvalidArgument
//   ENOTDIR, EISDIR                FailedPrecondition     the rest, EIO above all: Unavailable
absl::Status ErrnoStatus(int error, std::string_view what);

// Whether a refused optional feature (O_DIRECT, fallocate, io_uring) is behind this status: carry on without it.
bool IsRefusedFeature(const absl::Status& status);

}  // namespace kvist
