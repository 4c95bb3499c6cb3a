// A store with DRAM for a dozen of TestSpec's blocks and NVMe for some 200, by the real clock.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "cachestore/local_store.h"

namespace kvist {

inline absl::StatusOr<std::unique_ptr<LocalStore>> OpenSmallStore(const std::string& directory) {
  LocalStoreOptions options;
  options.nvme.directory = directory;
  options.nvme.capacity_bytes = 16 << 20;
  options.nvme.segment_bytes = 2 << 20;
  options.dram_bytes = 1 << 20;
  return LocalStore::Open(options);
}

}  // namespace kvist
