#include "cachestore/tier/nvme_space_maker.h"

#include <algorithm>

#include "absl/time/clock.h"
#include "cachestore/tier/survivor_mover.h"
#include "fmt/format.h"
#include "spdlog/spdlog.h"

namespace kvist {
namespace {

// One segment is kept free, so that survivors of a cleaned one have somewhere to go.
constexpr std::size_t kCleaningReserve = 1;
// Live bytes above this share of all segments but the reserve make cleaning rewrite too much for what it frees:
// least recently used blocks go first. (A survivor rewritten costs flash wear; an evicted block a recompute.)
constexpr double kLiveShareMax = 0.85;
// When eviction has to go on below that, it goes in steps of this share of a segment.
constexpr std::uint64_t kEvictStepDivisor = 8;
// A segment is worth cleaning if at least this share of it is dead.
constexpr std::uint64_t kCleanDeadDivisor = 16;
// Bounds an index batch, and with it the time the index is held.
constexpr std::size_t kEvictBatchBlocks = 4096;
// The index needs disk space to record deletes: creating segments stops before the disk is full to the brim.
constexpr std::uint64_t kIndexReserveBytes = std::uint64_t{32} << 20;
constexpr std::uint64_t kIndexReserveShare = 16;  // but no more than this part of the capacity
// A read in flight ends within moments; how often to look.
constexpr absl::Duration kReaderPollInterval = absl::Microseconds(200);

}  // namespace

absl::Status NvmeSpaceMaker::EnsureRoom(std::uint64_t record_bytes, const std::function<void()>& drain) {
  for (;;) {
    {
      absl::MutexLock lock(&core_.mutex);
      if (core_.space.open_room() >= record_bytes) return absl::OkStatus();
    }
    absl::Status opened = OpenSegment(kCleaningReserve);
    if (opened.ok()) continue;
    if (!absl::IsNotFound(opened)) return opened;
    drain();
    if (absl::Status reclaimed = Reclaim(record_bytes); !reclaimed.ok()) return reclaimed;
  }
}

std::size_t NvmeSpaceMaker::Takable() const {
  const std::uint64_t used = core_.space.file_bytes();
  const std::uint64_t capacity = core_.options.capacity_bytes;
  const std::size_t creatable = used >= capacity ? 0 : (capacity - used) / core_.segment_bytes;
  return core_.space.ReusableCount() + creatable;
}

absl::Status NvmeSpaceMaker::OpenSegment(std::size_t reserve) {
  absl::MutexLock order(&core_.index_mutex);
  bool reuse = false;
  {
    absl::MutexLock lock(&core_.mutex);
    if (Takable() <= reserve) return absl::NotFoundError("no segment to take");
    reuse = core_.space.ReusableCount() > 0;
  }
  // A segment written before is faster to write than a fresh one, and costs no space.
  absl::Status opened = reuse ? ReuseSegment() : OpenNewSegment();
  // Not to be taken for "there is none to take", which callers answer by making room and trying again.
  if (absl::IsNotFound(opened)) {
    return absl::UnavailableError(fmt::format("{}; was {} removed under the running store? Restart it",
                                              std::string(opened.message()), core_.directory.segments()));
  }
  return opened;
}

absl::Status NvmeSpaceMaker::ReuseSegment() {
  Segment* segment = nullptr;
  SegmentEntry entry;
  {
    absl::MutexLock lock(&core_.mutex);
    segment = core_.space.Reusable();
    if (segment == nullptr) return absl::NotFoundError("no segment to reuse");
    if (segment->fresh) {
      core_.space.Open(segment);
      return absl::OkStatus();
    }
    entry = {segment->generation + 1, segment->bytes};
  }
  if (segment->state == Segment::State::kFailed || segment->bytes != core_.segment_bytes) {
    if (absl::Status s = DeleteSegment(segment->id); !s.ok()) return s;
    return OpenNewSegment();
  }
  // The new generation is durable before any record of it is written.
  IndexBatch batch;
  batch.put_segments.emplace_back(segment->id, entry);
  if (absl::Status status = core_.ApplyWithDeletes(std::move(batch)); !status.ok()) return status;
  absl::MutexLock lock(&core_.mutex);
  segment->generation = entry.generation;
  core_.space.Open(segment);
  return absl::OkStatus();
}

absl::Status NvmeSpaceMaker::OpenNewSegment() {
  const absl::StatusOr<Segment*> created = CreateSegment();
  if (!created.ok()) return created.status();
  absl::MutexLock lock(&core_.mutex);
  core_.space.Open(*created);
  return absl::OkStatus();
}

void NvmeSpaceMaker::PrepareSegment() {
  absl::MutexLock order(&core_.index_mutex);
  {
    absl::MutexLock lock(&core_.mutex);
    if (core_.space.open_room() > core_.segment_bytes / 2 || core_.space.ReusableCount() > 0 ||
        Takable() <= kCleaningReserve) {
      return;
    }
  }
  (void)CreateSegment();  // whoever needs one tries again, and says what is wrong
}

absl::StatusOr<Segment*> NvmeSpaceMaker::CreateSegment() {
  const std::string directory = core_.directory.segments();
  const std::uint64_t margin = std::min(kIndexReserveBytes, core_.options.capacity_bytes / kIndexReserveShare);
  if (const absl::StatusOr<std::uint64_t> free = core_.fs->FreeBytes(directory);
      free.ok() && *free < core_.segment_bytes + margin) {
    return absl::ResourceExhaustedError(
        fmt::format("{} bytes are free for {}, a segment and the index need {}: free space there or lower the capacity",
                    *free, directory, core_.segment_bytes + margin));
  }
  auto segment = std::make_unique<Segment>();
  {
    absl::MutexLock lock(&core_.mutex);
    segment->id = core_.space.next_id();
  }
  segment->generation = FirstSegmentGeneration();
  segment->bytes = core_.segment_bytes;
  const std::string path = directory + "/" + SegmentFileName(segment->id);
  absl::StatusOr<std::unique_ptr<File>> file = core_.files->Create(path, segment->bytes);
  if (!file.ok()) return file.status();
  segment->file = *std::move(file);
  absl::Status status = core_.fs->SyncDirectory(directory);
  if (status.ok()) {
    IndexBatch batch;
    batch.put_segments.emplace_back(segment->id, SegmentEntry{segment->generation, segment->bytes});
    status = core_.ApplyWithDeletes(std::move(batch));
  }
  if (!status.ok()) {
    segment->file.reset();
    (void)core_.fs->Remove(path);
    return status;
  }
  segment->fresh = true;
  absl::MutexLock lock(&core_.mutex);
  return core_.space.Add(std::move(segment));
}

absl::Status NvmeSpaceMaker::DeleteSegment(std::uint64_t id) {
  // Nothing refers to it. The file goes first: an entry without a file is dropped at the next start.
  if (absl::Status s = core_.fs->Remove(core_.directory.segments() + "/" + SegmentFileName(id)); !s.ok()) return s;
  IndexBatch batch;
  batch.delete_segments.push_back(id);
  if (absl::Status s = core_.index->Apply(batch, IndexSync::kYes); !s.ok()) return s;
  absl::MutexLock lock(&core_.mutex);
  core_.space.Remove(id);
  return absl::OkStatus();
}

absl::Status NvmeSpaceMaker::Reclaim(std::uint64_t record_bytes) {
  if (absl::Status s = core_.FlushDeletes(); !s.ok()) return s;
  std::uint64_t excess = 0;
  {
    absl::MutexLock lock(&core_.mutex);
    if (Takable() > kCleaningReserve) return absl::OkStatus();
    excess = LiveExcess();
  }
  if (excess > 0) {
    // Pins may forbid it; cleaning may still find something.
    if (absl::Status s = Evict(excess); !s.ok() && !absl::IsResourceExhausted(s)) return s;
  }
  const std::uint64_t dead_min = std::max(record_bytes, core_.segment_bytes / kCleanDeadDivisor);
  for (;;) {
    Segment* victim = nullptr;
    bool somewhere_to_go = false;
    bool soon = false;
    {
      absl::MutexLock lock(&core_.mutex);
      if (Takable() > kCleaningReserve) return absl::OkStatus();
      victim = core_.space.MostDead(dead_min);
      // With the reserve lost (an earlier failure), survivors must fit where we append now.
      somewhere_to_go =
          Takable() > 0 || (victim != nullptr && core_.space.open_room() >= victim->live_bytes + record_bytes);
      soon = core_.space.AwaitsReaders();
    }
    if (victim != nullptr && somewhere_to_go) {
      return SurvivorMover(&core_, [this] { return OpenSegment(0); }).Clean(victim);
    }
    if (soon) {
      absl::SleepFor(kReaderPollInterval);
      continue;
    }
    if (victim != nullptr) return DropSegment(victim);
    if (absl::Status s = Evict(core_.segment_bytes / kEvictStepDivisor); !s.ok()) return s;
  }
}

std::uint64_t NvmeSpaceMaker::LiveExcess() const {
  const std::uint64_t usable = (core_.segments_max - kCleaningReserve) * core_.segment_bytes;
  const auto live_max = static_cast<std::uint64_t>(kLiveShareMax * static_cast<double>(usable));
  return core_.space.live_bytes() > live_max ? core_.space.live_bytes() - live_max : 0;
}

absl::Status NvmeSpaceMaker::Evict(std::uint64_t bytes) {
  std::uint64_t gone = 0;
  bool more = true;
  while (more && gone < bytes) {
    std::size_t batch = 0;
    {
      absl::MutexLock lock(&core_.mutex);
      while (gone < bytes && batch < kEvictBatchBlocks) {
        const std::optional<BlockKey> key = core_.summary.Victim();
        if (!key) break;
        gone += core_.summary.Find(*key)->record_bytes;
        core_.Remove(*key);
        ++core_.counters.evicted_blocks;
        ++batch;
      }
    }
    more = batch > 0;
    if (absl::Status s = core_.FlushDeletes(); !s.ok()) return s;
  }
  if (gone == 0) {
    return absl::ResourceExhaustedError(
        "the NVMe tier is full and nothing may leave it: unpin prefixes or raise its capacity");
  }
  return absl::OkStatus();
}

absl::Status NvmeSpaceMaker::DropSegment(Segment* victim) {
  std::uint64_t dropped = 0;
  {
    absl::MutexLock lock(&core_.mutex);
    for (const ResidentSummary::Slot slot : victim->placed) {
      const std::optional<ResidentSummary::Item> item = core_.summary.At(slot);
      if (!item || core_.space.Find(item->second.extent) != victim) continue;
      const std::vector<BlockKey> subtree = core_.summary.Subtree(item->first);
      const bool pinned = std::any_of(subtree.begin(), subtree.end(),
                                      [&](const BlockKey& k) { return core_.summary.Find(k)->pins > 0; });
      if (pinned) continue;
      for (const BlockKey& k : subtree) core_.Remove(k);
      core_.counters.evicted_blocks += subtree.size();
      dropped += subtree.size();
    }
  }
  if (dropped == 0) {
    return absl::ResourceExhaustedError("the NVMe tier is full of pinned blocks: unpin prefixes or raise its capacity");
  }
  return core_.FlushDeletes();
}

absl::Status NvmeSpaceMaker::Shrink() {
  std::size_t cleanings_left = 0;  // packing full segments over and over would not end
  {
    absl::MutexLock lock(&core_.mutex);
    cleanings_left = 2 * core_.space.count();
  }
  for (;;) {
    bool done = false;
    const absl::Status status = ShrinkStep(cleanings_left, done);
    if (absl::IsResourceExhausted(status)) {
      spdlog::warn("the NVMe tier stays above its capacity of {} bytes: {}", core_.options.capacity_bytes,
                   std::string(status.message()));
      return absl::OkStatus();
    }
    if (!status.ok() || done) return status;
  }
}

absl::Status NvmeSpaceMaker::ShrinkStep(std::size_t& cleanings_left, bool& done) {
  std::uint64_t excess = 0;
  std::size_t empty = 0;
  Segment* spare = nullptr;
  Segment* victim = nullptr;
  bool fits = false;
  {
    absl::MutexLock lock(&core_.mutex);
    done = core_.space.file_bytes() <= core_.options.capacity_bytes;
    if (done) return absl::OkStatus();
    excess = LiveExcess();
    empty = core_.space.ReusableCount();
    spare = core_.space.Reusable();
    victim = core_.space.MostDead(0);
    fits = victim != nullptr && core_.space.open_room() >= victim->live_bytes;
    if (victim == nullptr && spare == nullptr) {
      core_.space.Seal();  // only the open one is left; it is empty or becomes the victim
      return absl::OkStatus();
    }
  }
  if (excess > 0) return Evict(excess);
  const bool clean = victim != nullptr && cleanings_left > 0 && (fits || empty > 0);
  if (empty > 1 || (empty == 1 && !clean)) return DeleteSegment(spare->id);
  if (!clean) return DropSegment(victim);
  --cleanings_left;
  return SurvivorMover(&core_, [this] { return OpenSegment(0); }).Clean(victim);
}

}  // namespace kvist
