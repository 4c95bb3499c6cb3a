#include "cachestore/io/errno_status.h"

#include <cerrno>
#include <string>
#include <system_error>

#include "fmt/format.h"

namespace kvist {
namespace {

std::string Describe(int error, std::string_view what, std::string_view remedy) {
  std::string text = fmt::format("{}: {}", what, std::generic_category().message(error));
  if (!remedy.empty()) text += fmt::format(" ({})", remedy);
  return text;
}

}  // namespace

absl::Status ErrnoStatus(int error, std::string_view what) {
  switch (error) {
    case ENOSPC:
      return absl::ResourceExhaustedError(
          Describe(error, what, "free space on that file system or lower the capacity"));
    case EDQUOT:
      return absl::ResourceExhaustedError(Describe(error, what, "raise the quota or lower the capacity"));
    case EACCES:
    case EPERM:
      return absl::PermissionDeniedError(Describe(error, what, "give this user write access to the store directory"));
    case EROFS:
      return absl::PermissionDeniedError(Describe(error, what, "choose a directory on a writable file system"));
    case ENOENT:
      return absl::NotFoundError(Describe(error, what, ""));
    case EEXIST:
      return absl::AlreadyExistsError(Describe(error, what, ""));
    case EOPNOTSUPP:
    case ENOSYS:
      return absl::UnimplementedError(Describe(error, what, ""));
    case EINVAL:
      return absl::InvalidArgumentError(Describe(error, what, ""));
    case ENOTDIR:
    case EISDIR:
      return absl::FailedPreconditionError(Describe(error, what, "choose another path for the store directory"));
    case EMFILE:
    case ENFILE:
      return absl::ResourceExhaustedError(Describe(error, what, "raise the limit on open files, ulimit -n"));
    default:
      return absl::UnavailableError(Describe(error, what, error == EIO ? "the device reports an error" : ""));
  }
}

bool IsRefusedFeature(const absl::Status& status) {
  return absl::IsUnimplemented(status) || absl::IsInvalidArgument(status);
}

}  // namespace kvist
