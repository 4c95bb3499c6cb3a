// The --store flag: which store a command works on.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"
#include "cachestore/prefix_store.h"

namespace kvist::cli {

struct StoreFlag {
  std::string url;     // unix:SOCKET, local:DIR, DIR, or empty
  std::string shared;  // a folder that an embedded store shares with others; empty: none

  void Add(CLI::App& app, bool required);
  // In this process, so that what it wrote must be flushed before it ends.
  bool embedded() const;
  // Where `url` names a directory, that directory.
  std::string directory() const;
};

// What of an embedded store's memory a command needs that only looks or drops. Small, because all of it is pinned for
// I/O at opening, which takes about a second per GiB.
inline constexpr std::uint64_t kLookingDramBytes = std::uint64_t{64} << 20;

// Connects to or opens the store. `existing`: a directory that holds no store is an error, not made into one.
// `dram_bytes` is for an embedded store. The message names the fault and the remedy.
absl::StatusOr<std::unique_ptr<PrefixStore>> Open(const StoreFlag& flag, bool existing,
                                                  std::uint64_t dram_bytes = kLookingDramBytes);

}  // namespace kvist::cli
