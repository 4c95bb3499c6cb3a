// ExtentPages: where a record lies, in 32 bits. Each segment has a range of page numbers (4 KiB pages, as many as the
// largest segment has); a record is named by its first page. 2^32 pages are 16 TiB.
// A segment has one generation at a time: all records that are resident in it are of that one.
// Not thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "cachestore/tier/block_record.h"

namespace kvist {

class ExtentPages {
 public:
  static constexpr std::uint64_t kBytesMax = (std::uint64_t{1} << 32) * kRecordAlignment;

  // Before the first Pack: no segment is larger.
  void SetSegmentBytesMax(std::uint64_t bytes);

  // A generation that differs from the segment's last one takes its place.
  std::uint32_t Pack(const ExtentStamp& extent);
  ExtentStamp Unpack(std::uint32_t page) const;

 private:
  struct Segment {
    std::uint64_t id = 0;
    std::uint64_t generation = 0;
  };
  std::vector<Segment> segments_;  // by range
  absl::flat_hash_map<std::uint64_t, std::uint32_t> range_of_;
  unsigned range_bits_ = 16;  // pages of a range: 2^this; 256 MiB
};

}  // namespace kvist
