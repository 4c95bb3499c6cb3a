// Finds the records in a segment file by their own headers.
// Thread safety: plain functions.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cachestore/io/file.h"
#include "cachestore/key/key_hasher.h"
#include "cachestore/tier/block_record.h"

namespace kvist {

struct FoundRecord {
  RecordHeader header;
  // OK: every byte is what was sealed, and the key follows from parent and tokens. DataLoss: what is not so.
  absl::Status verdict;
};

// A file read through a buffer.
class SegmentWindow {
 public:
  SegmentWindow(File* file, std::uint64_t bytes) : file_(*file), bytes_(bytes) {}
  // Valid until the next call. OutOfRange beyond the end.
  absl::StatusOr<std::span<const std::byte>> View(std::uint64_t offset, std::uint64_t length);
  std::uint64_t bytes() const { return bytes_; }

 private:
  File& file_;
  const std::uint64_t bytes_;
  std::vector<std::byte> buffer_;
  std::uint64_t begin_ = 0;
  std::uint64_t length_ = 0;
};

// The verdict on the record in `record`, which is at least as long as its header says.
absl::Status JudgeRecord(std::span<const std::byte> record, const RecordHeader& header, const KeyHasher& hasher);

// Visits, in order, every record whose header is whole and names this segment and place, of whatever generation.
// `starts` (sorted): where the index says that records begin; one of those is looked at even inside another record.
// `progress` gets the bytes passed. What cannot be read is passed over.
void ScanSegment(SegmentWindow& window, std::uint64_t segment, std::span<const std::uint64_t> starts,
                 const KeyHasher& hasher, const std::function<void(FoundRecord)>& visit,
                 const std::function<void(std::uint64_t)>& progress);

}  // namespace kvist
