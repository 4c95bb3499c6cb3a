// Finding and damaging a block's record in a store's segment files, from outside.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "cachestore/key/digest.h"

namespace kvist {

struct StoredRecord {
  std::string file;
  std::uint64_t offset = 0;
  std::size_t header_bytes = 0;
  std::size_t record_bytes = 0;
};

std::optional<StoredRecord> FindStoredRecord(const std::string& store_directory, const BlockKey& key);

// Inverts `count` bytes at `at` within the record.
void InvertStoredBytes(const StoredRecord& record, std::size_t at, std::size_t count);

}  // namespace kvist
