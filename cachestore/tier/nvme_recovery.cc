#include "cachestore/tier/nvme_recovery.h"

#include <algorithm>
#include <map>
#include <set>

#include "cachestore/tier/removal_log.h"
#include "cachestore/tier/store_opening.h"
#include "fmt/format.h"
#include "spdlog/spdlog.h"

namespace kvist {
namespace {

// A segment worth going on with has at least this share of itself left.
constexpr std::uint64_t kResumeDivisor = 16;

class Recovery {
 public:
  explicit Recovery(NvmeCore& core) : core_(core) {}

  absl::Status Run() {
    if (absl::Status s = LoadNamespaces(core_); !s.ok()) return s;
    if (absl::Status s = LoadSegments(); !s.ok()) return s;
    if (absl::Status s = LoadBlocks(); !s.ok()) return s;
    if (absl::Status s = SkipRemoved(); !s.ok()) return s;
    absl::MutexLock lock(&core_.mutex);
    ResumeSegment();
    return absl::OkStatus();
  }

 private:
  absl::Status LoadSegments() {
    std::map<std::uint64_t, SegmentEntry> known;
    absl::Status read =
        core_.index->ForEachSegment([&](std::uint64_t id, const SegmentEntry& entry) { known[id] = entry; });
    if (!read.ok()) return read;
    const absl::StatusOr<std::vector<std::string>> names = core_.fs->List(core_.directory.segments());
    if (!names.ok()) return names.status();
    std::uint64_t bytes_max = core_.segment_bytes;
    for (const auto& [id, entry] : known) bytes_max = std::max(bytes_max, entry.bytes);
    {
      absl::MutexLock lock(&core_.mutex);
      core_.summary.SetSegmentBytesMax(bytes_max);
    }
    IndexBatch batch;
    std::set<std::uint64_t> present;
    for (const std::string& name : *names) {
      const std::optional<std::uint64_t> id = ParseSegmentFileName(name);
      if (!id) continue;
      present.insert(*id);
      const auto it = known.find(*id);
      // Not in the index: its creation or its deletion was interrupted, so nothing in it counts. Not gone on with: what
      // may lie in it must not be taken for what a new generation writes, should the index be rebuilt.
      const absl::Status loaded =
          it == known.end() ? core_.fs->Remove(core_.directory.segments() + "/" + name) : LoadSegment(*id, it->second);
      if (!loaded.ok()) return loaded;
    }
    for (const auto& [id, entry] : known) {
      if (present.contains(id)) continue;
      spdlog::warn("segment {} is missing: its blocks are dropped", SegmentFileName(id));
      batch.delete_segments.push_back(id);
    }
    return core_.index->Apply(batch, IndexSync::kYes);
  }

  absl::Status LoadSegment(std::uint64_t id, const SegmentEntry& known) {
    const std::string path = core_.directory.segments() + "/" + SegmentFileName(id);
    absl::StatusOr<std::unique_ptr<File>> file = core_.files->Open(path);
    if (!file.ok()) return file.status();
    const absl::StatusOr<std::uint64_t> size = (*file)->Size();
    if (!size.ok()) return size.status();
    auto segment = std::make_unique<Segment>();
    segment->id = id;
    segment->bytes = known.bytes;
    segment->generation = known.generation;
    segment->file = *std::move(file);
    segment->state = Segment::State::kSealed;
    if (*size < segment->bytes) {
      spdlog::warn("segment {} has {} of {} bytes: blocks beyond are dropped", path, *size, segment->bytes);
      readable_[id] = *size;
      // Replaced by a new file once it is empty.
      segment->state = Segment::State::kFailed;
    } else {
      readable_[id] = segment->bytes;
    }
    absl::MutexLock lock(&core_.mutex);
    core_.space.Add(std::move(segment));
    return absl::OkStatus();
  }

  bool Holds(const BlockEntry& e) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_.mutex) {
    if (core_.space.Find(e.extent) == nullptr) return false;
    const std::uint64_t end = readable_.at(e.extent.segment);
    return e.record_bytes > 0 && e.record_bytes % kRecordAlignment == 0 && e.extent.offset % kRecordAlignment == 0 &&
           e.record_bytes <= end && e.extent.offset <= end - e.record_bytes;
  }

  absl::Status LoadBlocks() {
    std::uint64_t dropped = 0;
    absl::Status read = core_.index->ForEachBlock([&](const BlockKey& key, const BlockEntry& entry) {
      absl::MutexLock lock(&core_.mutex);
      if (!Holds(entry)) {
        ++dropped;
        // Nothing to give back: its segment does not count it. (No segment has generation 0 and number 0.)
        core_.deletes.push_back({key, ExtentStamp{}, 0});
        return;
      }
      Segment* segment = core_.space.Find(entry.extent);
      core_.space.Adopt(segment, *core_.summary.Restore(key, entry), entry.record_bytes);
      segment->appended = std::max(segment->appended, entry.extent.offset + entry.record_bytes);
    });
    if (!read.ok()) return read;
    dropped += core_.index->undecodable();
    if (dropped > 0) spdlog::warn("{} index entries had no readable extent and were dropped", dropped);
    return absl::OkStatus();
  }

  // REMOVALS goes by place: nothing new may come where, in the same generation, something was removed.
  absl::Status SkipRemoved() {
    absl::MutexLock order(&core_.index_mutex);
    if (absl::Status s = core_.CompactRemovals(); !s.ok()) return s;
    const absl::StatusOr<RemovalLogContents> log = ReadRemovalLog(*core_.fs, core_.directory.removals());
    if (!log.ok()) return log.status();
    absl::MutexLock lock(&core_.mutex);
    for (const RemovedExtent& removal : log->removals) {
      Segment* segment = core_.space.Find({removal.segment, removal.generation, 0});
      if (segment == nullptr || removal.kind != RemovedExtent::Kind::kRecord) continue;
      segment->appended = std::max(segment->appended, removal.end);
    }
    return absl::OkStatus();
  }

  // Goes on in the segment with the most room behind its last record. What may lie there was never acknowledged.
  void ResumeSegment() ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_.mutex) {
    Segment* best = nullptr;
    for (const auto& [id, segment] : core_.space.all()) {
      if (segment->state != Segment::State::kSealed || segment->live_bytes == 0) continue;
      if (segment->bytes - segment->appended < segment->bytes / kResumeDivisor) continue;
      if (best == nullptr || segment->bytes - segment->appended > best->bytes - best->appended) best = segment.get();
    }
    if (best != nullptr) core_.space.Resume(best, best->appended);
  }

  NvmeCore& core_;
  std::map<std::uint64_t, std::uint64_t> readable_;  // bytes by segment
};

}  // namespace

absl::Status RecoverNvme(NvmeCore& core) { return Recovery(core).Run(); }

}  // namespace kvist
