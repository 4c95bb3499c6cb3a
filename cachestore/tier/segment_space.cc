#include "cachestore/tier/segment_space.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace kvist {
namespace {

bool IsReusable(const Segment& segment) { return segment.state != Segment::State::kOpen && segment.quiet(); }

}  // namespace

Segment* SegmentSpace::Add(std::unique_ptr<Segment> segment) {
  live_bytes_ += segment->live_bytes;
  Segment* added = segment.get();
  segments_[added->id] = std::move(segment);
  return added;
}

Segment* SegmentSpace::Find(std::uint64_t id) const {
  const auto it = segments_.find(id);
  return it == segments_.end() ? nullptr : it->second.get();
}

Segment* SegmentSpace::Find(const ExtentStamp& extent) const {
  Segment* segment = Find(extent.segment);
  return segment != nullptr && segment->generation == extent.generation ? segment : nullptr;
}

std::optional<ExtentStamp> SegmentSpace::Append(std::uint64_t record_bytes) {
  if (open_room() < record_bytes) return std::nullopt;
  const ExtentStamp extent{open_->id, open_->generation, open_->appended};
  open_->appended += record_bytes;
  ++open_->uncommitted;
  return extent;
}

void SegmentSpace::Committed(const ExtentStamp& extent, std::uint32_t slot, std::uint64_t record_bytes) {
  Segment* segment = Find(extent);
  assert(segment != nullptr && segment->uncommitted > 0);
  --segment->uncommitted;
  segment->live_bytes += record_bytes;
  segment->placed.push_back(slot);
  live_bytes_ += record_bytes;
}

void SegmentSpace::Adopt(Segment* segment, std::uint32_t slot, std::uint64_t record_bytes) {
  segment->live_bytes += record_bytes;
  segment->placed.push_back(slot);
  live_bytes_ += record_bytes;
}

void SegmentSpace::Abandoned(const ExtentStamp& extent) {
  Segment* segment = Find(extent);
  assert(segment != nullptr && segment->uncommitted > 0);
  --segment->uncommitted;
}

void SegmentSpace::GiveBack(const ExtentStamp& extent, std::uint64_t record_bytes) {
  if (open_ == nullptr || open_ != Find(extent)) return;
  given_back_[extent.offset + record_bytes] = extent.offset;
  for (auto it = given_back_.find(open_->appended); it != given_back_.end(); it = given_back_.find(open_->appended)) {
    open_->appended = it->second;
    given_back_.erase(it);
  }
}

void SegmentSpace::Release(const ExtentStamp& extent, std::uint64_t record_bytes) {
  Segment* segment = Find(extent);
  if (segment == nullptr) return;
  const std::uint64_t released = std::min(segment->live_bytes, record_bytes);
  assert(released == record_bytes);
  segment->live_bytes -= released;
  live_bytes_ -= released;
}

void SegmentSpace::Seal() {
  if (open_ == nullptr) return;
  open_->placed.shrink_to_fit();  // they stay for long, and add up
  std::exchange(open_, nullptr)->state = Segment::State::kSealed;
}

void SegmentSpace::Open(Segment* segment) {
  assert(IsReusable(*segment));
  Seal();
  segment->state = Segment::State::kOpen;
  segment->fresh = false;
  segment->appended = 0;
  segment->placed.clear();
  given_back_.clear();
  open_ = segment;
}

void SegmentSpace::Resume(Segment* segment, std::uint64_t appended) {
  Seal();
  segment->state = Segment::State::kOpen;
  segment->appended = appended;
  given_back_.clear();
  open_ = segment;
}

void SegmentSpace::Fail(std::uint64_t segment) {
  Segment* failed = Find(segment);
  if (failed == nullptr) return;
  if (failed == open_) open_ = nullptr;
  failed->state = Segment::State::kFailed;
}

Segment* SegmentSpace::Reusable() const {
  for (const auto& [id, segment] : segments_) {
    if (IsReusable(*segment)) return segment.get();
  }
  return nullptr;
}

std::size_t SegmentSpace::ReusableCount() const {
  return static_cast<std::size_t>(
      std::count_if(segments_.begin(), segments_.end(), [](const auto& item) { return IsReusable(*item.second); }));
}

Segment* SegmentSpace::MostDead(std::uint64_t dead_bytes_min) const {
  Segment* best = nullptr;
  for (const auto& [id, segment] : segments_) {
    if (segment->state == Segment::State::kOpen || segment->live_bytes == 0 || segment->uncommitted > 0) continue;
    if (segment->dead_bytes() < dead_bytes_min) continue;
    if (best == nullptr || segment->dead_bytes() > best->dead_bytes()) best = segment.get();
  }
  return best;
}

bool SegmentSpace::AwaitsReaders() const {
  return std::any_of(segments_.begin(), segments_.end(), [](const auto& item) {
    const Segment& s = *item.second;
    return s.state != Segment::State::kOpen && s.live_bytes == 0 && s.uncommitted == 0 && s.readers.load() > 0;
  });
}

std::uint64_t SegmentSpace::file_bytes() const {
  std::uint64_t bytes = 0;
  for (const auto& [id, segment] : segments_) bytes += segment->bytes;
  return bytes;
}

}  // namespace kvist
