// The --store flag: which store a command works on.
#pragma once

#include <memory>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"
#include "cachestore/prefix_store.h"

namespace kvist::cli {

struct StoreFlag {
  std::string url;  // unix:SOCKET, local:DIR, DIR, or empty

  void Add(CLI::App& app, bool required);
  // In this process, so that what it wrote must be flushed before it ends.
  bool embedded() const;
  // Where `url` names a directory, that directory.
  std::string directory() const;
};

// Connects to or opens the store. `existing`: a directory that holds no store is an error, not made into one.
// The message names the fault and the remedy.
absl::StatusOr<std::unique_ptr<PrefixStore>> Open(const StoreFlag& flag, bool existing);

}  // namespace kvist::cli
