// How sizes, durations and paths are written in the configuration.
// Plain functions; any thread (paths read the environment).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace kvist::daemon {

// "512B", "64KiB", "1.5GiB", "4TiB", also "GB" and the like (powers of 1000). The unit is required.
absl::StatusOr<std::uint64_t> ParseBytes(std::string_view text);
std::string BytesText(std::uint64_t bytes);

// "500ms", "30s", "5m", "72h", "3d", or "inf". The unit is required; not negative.
absl::StatusOr<absl::Duration> ParseDuration(std::string_view text);
std::string DurationText(absl::Duration duration);

// A leading "~/" and these variables are replaced; any other ${...} is an error:
//   ${HOME}         the user's home directory
//   ${RUNTIME_DIR}  $XDG_RUNTIME_DIR, or /tmp/kvist-UID where there is none
//   ${CACHE_DIR}    $XDG_CACHE_HOME, or ~/.cache
absl::StatusOr<std::string> ExpandPath(std::string_view text);

}  // namespace kvist::daemon
