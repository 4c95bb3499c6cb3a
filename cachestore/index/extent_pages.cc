#include "cachestore/index/extent_pages.h"

#include <bit>
#include <cassert>

namespace kvist {

void ExtentPages::SetSegmentBytesMax(std::uint64_t bytes) {
  assert(segments_.empty());
  range_bits_ = static_cast<unsigned>(std::bit_width((bytes - 1) / kRecordAlignment));
}

std::uint32_t ExtentPages::Pack(const ExtentStamp& extent) {
  const auto [it, added] = range_of_.try_emplace(extent.segment, static_cast<std::uint32_t>(segments_.size()));
  if (added) segments_.emplace_back();
  segments_[it->second] = {extent.segment, extent.generation};
  const std::uint64_t page = extent.offset / kRecordAlignment;
  assert(extent.offset % kRecordAlignment == 0 && page >> range_bits_ == 0);
  return static_cast<std::uint32_t>(std::uint64_t{it->second} << range_bits_ | page);
}

ExtentStamp ExtentPages::Unpack(std::uint32_t page) const {
  const Segment& segment = segments_[page >> range_bits_];
  const std::uint64_t offset = page & ((std::uint64_t{1} << range_bits_) - 1);
  return {segment.id, segment.generation, offset * kRecordAlignment};
}

}  // namespace kvist
