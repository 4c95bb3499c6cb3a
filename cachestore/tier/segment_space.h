// Where space is on the device: which bytes of which segment are live, where the next record goes, which segment can
// be reused or is worth cleaning. Accounting only, no I/O.
//
// A segment goes free -> open -> sealed -> free. One at a time is open; records are appended to it. Space of a removed
// block comes back when all of its segment is dead: by itself, or because the survivors were rewritten elsewhere.
// A failed segment (its fdatasync failed) takes no more records and is replaced by a new file when it is empty.
//
// Not thread-safe: the owner's lock guards it, except Segment::readers.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "cachestore/io/file.h"
#include "cachestore/tier/block_record.h"

namespace kvist {

struct Segment {
  enum class State : std::uint8_t { kFree, kOpen, kSealed, kFailed };

  std::uint64_t id = 0;
  std::uint64_t generation = 0;
  std::uint64_t bytes = 0;
  std::uint64_t readable = 0;  // of an older segment: as much as its file had when the store opened
  std::unique_ptr<File> file;

  State state = State::kFree;
  bool fresh = false;                 // created ahead of need and never written: its generation is still unused
  std::uint64_t appended = 0;         // the next record goes here
  std::uint64_t live_bytes = 0;       // of records that the index refers to, deletes not yet durable included
  std::uint32_t uncommitted = 0;      // records placed and not yet in the index
  std::vector<std::uint32_t> placed;  // slots in the summary of its records; those of dead ones may be others' by now
  // Reads in flight. Raised under the owner's lock (shared is enough), lowered anywhere.
  std::atomic<std::uint32_t> readers = 0;

  bool quiet() const { return live_bytes == 0 && uncommitted == 0 && readers.load(std::memory_order_acquire) == 0; }
  std::uint64_t dead_bytes() const { return bytes - live_bytes; }
};

class SegmentSpace {
 public:
  Segment* Add(std::unique_ptr<Segment> segment);
  void Remove(std::uint64_t id) { segments_.erase(id); }
  Segment* Find(std::uint64_t id) const;
  // The segment that this stamp means; null if it is gone or reused since.
  Segment* Find(const ExtentStamp& extent) const;

  // Places a record in the open segment; nullopt: none is open, or it has no room. The record counts as uncommitted
  // until Committed or Abandoned.
  std::optional<ExtentStamp> Append(std::uint64_t record_bytes);
  std::uint64_t open_room() const { return open_ == nullptr ? 0 : open_->bytes - open_->appended; }

  void Committed(const ExtentStamp& extent, std::uint32_t slot, std::uint64_t record_bytes);
  // Counts a record that the index already refers to, when opening.
  void Adopt(Segment* segment, std::uint32_t slot, std::uint64_t record_bytes);
  void Abandoned(const ExtentStamp& extent);
  // The place of an abandoned record may be written again in this generation: nothing about it reached the index. Only
  // the open segment's tail can be; what is given back before others behind it follows when those do.
  void GiveBack(const ExtentStamp& extent, std::uint64_t record_bytes);
  // A block's index entry is durably gone.
  void Release(const ExtentStamp& extent, std::uint64_t record_bytes);

  void Seal();                                            // closes the open segment, if any
  void Open(Segment* segment);                            // must be reusable
  void Resume(Segment* segment, std::uint64_t appended);  // goes on where an earlier process stopped
  void Fail(std::uint64_t segment);

  // A segment whose space may be reused now; failed ones too, for replacing. Null: none.
  Segment* Reusable() const;
  std::size_t ReusableCount() const;
  // The sealed segment with the most dead bytes; null: none has at least `dead_bytes_min`. Never one with records
  // uncommitted.
  Segment* MostDead(std::uint64_t dead_bytes_min) const;
  // Whether some segment only waits for its readers.
  bool AwaitsReaders() const;

  std::size_t count() const { return segments_.size(); }
  std::uint64_t file_bytes() const;  // all segment files
  std::uint64_t live_bytes() const { return live_bytes_; }
  std::uint64_t next_id() const { return segments_.empty() ? 1 : segments_.rbegin()->first + 1; }
  const std::map<std::uint64_t, std::unique_ptr<Segment>>& all() const { return segments_; }

 private:
  std::map<std::uint64_t, std::unique_ptr<Segment>> segments_;
  Segment* open_ = nullptr;
  std::map<std::uint64_t, std::uint64_t> given_back_;  // of the open segment: end -> begin
  std::uint64_t live_bytes_ = 0;
};

}  // namespace kvist
