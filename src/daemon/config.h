// The daemon's configuration: one TOML file, every key of which can be overridden on the command line.
// Plain values and functions; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cachestore/retention/eviction_policy.h"
#include "src/daemon/limits.h"

namespace kvist::daemon {

struct DaemonConfig {
  std::string socket = "${RUNTIME_DIR}/kvistd.sock";  // as written; expanded by Resolve
  std::uint64_t threads = 2;
  std::string log_level = "info";
  absl::Duration drain_timeout = absl::Seconds(10);
  absl::Duration flush_timeout = absl::Minutes(5);

  std::string directory = "${CACHE_DIR}/kvist";
  std::uint64_t dram_bytes = std::uint64_t{1} << 30;
  std::uint64_t nvme_bytes = std::uint64_t{16} << 30;
  std::uint64_t segment_bytes = std::uint64_t{256} << 20;
  std::uint64_t queue_depth = 32;
  std::string eviction{EvictionKindName(kDefaultEviction)};
  absl::Duration ttl = absl::Hours(72);

  std::string shared_directory;  // empty: no shared tier
  bool shared_sync = true;
  std::uint64_t shared_threads = 8;
  absl::Duration shared_timeout = absl::Seconds(2);
  absl::Duration shared_chain_timeout = absl::Seconds(10);
  absl::Duration shared_drain_timeout = absl::Seconds(5);

  Limits limits;
};

// The file's keys over the defaults, then `overrides` ("store.dram=4GiB"), then Resolve. An empty path: no file.
// NotFound: no such file. InvalidArgument names file, line and key, or the override.
absl::StatusOr<DaemonConfig> LoadConfig(const std::string& path, const std::vector<std::string>& overrides);

// The same from text; `name` stands for the file in errors.
absl::StatusOr<DaemonConfig> ParseConfig(std::string_view text, const std::string& name,
                                         const std::vector<std::string>& overrides);

// A TOML file that loads as `config`, every key with its one-line description.
std::string PrintConfig(const DaemonConfig& config);

}  // namespace kvist::daemon
