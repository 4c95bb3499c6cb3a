#include "cachestore/tier/block_loader.h"

#include <algorithm>
#include <optional>

#include "cachestore/tier/nvme_space_maker.h"
#include "cachestore/tier/removal_log.h"
#include "spdlog/spdlog.h"

namespace kvist {
namespace {

// Entries taken under one lock: some 100 microseconds.
constexpr std::size_t kTakeBlocks = 512;
// A segment worth going on with has at least this share of itself left.
constexpr std::uint64_t kResumeDivisor = 16;

}  // namespace

void BlockLoader::Start() {
  thread_ = std::thread([this] {
    core_.load_status = Run();
    if (!core_.load_status.ok() && !absl::IsCancelled(core_.load_status)) {
      spdlog::error("the NVMe tier takes no writes, and what is not loaded is a miss: {}",
                    std::string(core_.load_status.message()));
    }
    core_.loaded.Notify();
    std::vector<absl::AnyInvocable<void()>> waiting;
    {
      absl::MutexLock lock(&mutex_);
      ended_ = true;
      watchers_.clear();
      waiting.swap(waiting_);
    }
    for (auto& done : waiting) done();
  });
}

void BlockLoader::Stop() {
  stop_ = true;
  if (thread_.joinable()) thread_.join();
}

void BlockLoader::WhenLoaded(absl::AnyInvocable<void()> done) {
  {
    absl::MutexLock lock(&mutex_);
    if (!ended_) {
      waiting_.push_back(std::move(done));
      return;
    }
  }
  done();
}

void BlockLoader::Watch(Visit visit) {
  absl::MutexLock lock(&mutex_);
  if (!ended_) watchers_.push_back(std::move(visit));
}

void BlockLoader::Load(std::span<const BlockKey> keys) {
  absl::StatusOr<Items> found = core_.index->FindBlocks(keys);
  if (!found.ok()) {
    spdlog::error("a lookup is a miss: {}", std::string(found.status().message()));
    return;
  }
  Take(*found);
}

absl::Status BlockLoader::Run() {
  // Not under the lock: the disk may hang, and whoever makes a namespace waits for the lock.
  absl::StatusOr<std::unique_ptr<RemovalLog>> opened =
      RemovalLog::Open(core_.fs, core_.directory.removals(), core_.after_crash);
  if (!opened.ok()) return opened.status();
  std::vector<RemovedExtent> removals;
  {
    absl::MutexLock order(&core_.index_mutex);
    core_.removals = *std::move(opened);
    if (absl::Status s = core_.CompactRemovals(); !s.ok()) return s;
    absl::StatusOr<RemovalLogContents> log = ReadRemovalLog(*core_.fs, core_.directory.removals());
    if (!log.ok()) return log.status();
    removals = std::move(log->removals);
  }
  if (absl::Status s = LoadAll(); !s.ok()) return s;
  {
    absl::MutexLock lock(&core_.mutex);
    // REMOVALS goes by place: nothing new may come where, in the same generation, something was removed.
    for (const RemovedExtent& removal : removals) {
      Segment* segment = core_.space.Find({removal.segment, removal.generation, 0});
      if (segment == nullptr || removal.kind != RemovedExtent::Kind::kRecord) continue;
      segment->appended = std::max(segment->appended, removal.end);
    }
    ResumeSegment();
    core_.loading = false;
    core_.gone.clear();
  }
  core_.index->EndReads();
  if (absl::Status s = core_.FlushDeletes(); !s.ok()) return s;
  return NvmeSpaceMaker(&core_).Shrink();
}

absl::Status BlockLoader::LoadAll() {
  Items items;
  std::uint64_t dropped_before = 0;
  {
    absl::MutexLock lock(&core_.mutex);
    dropped_before = core_.deletes.size();
  }
  const absl::Status read = core_.index->ForEachBlock([&](const BlockKey& key, const BlockEntry& entry) {
    items.emplace_back(key, entry);
    if (items.size() == kTakeBlocks) {
      Take(items);
      items.clear();
    }
    return !stop_.load(std::memory_order_relaxed);
  });
  if (!read.ok()) return read;
  if (stop_) return absl::CancelledError("the NVMe tier is closing");
  Take(items);
  absl::MutexLock lock(&core_.mutex);
  const std::uint64_t dropped = core_.deletes.size() - dropped_before + core_.index->undecodable();
  if (dropped > 0) spdlog::warn("{} index entries had no readable extent and were dropped", dropped);
  return absl::OkStatus();
}

bool BlockLoader::Take(const Items& items) {
  Items taken;
  {
    absl::MutexLock lock(&core_.mutex);
    if (!core_.loading) return false;
    for (const auto& [key, entry] : items) {
      if (core_.summary.Contains(key) || core_.gone.contains(key)) continue;
      if (!Holds(entry)) {
        // Nothing to give back: its segment does not count it. (No segment has generation 0 and number 0.)
        core_.deletes.push_back({key, ExtentStamp{}, 0});
        core_.gone.insert(key);
        continue;
      }
      Segment* segment = core_.space.Find(entry.extent);
      core_.space.Adopt(segment, *core_.summary.Restore(key, entry), entry.record_bytes);
      segment->appended = std::max(segment->appended, entry.extent.offset + entry.record_bytes);
      taken.emplace_back(key, entry);
    }
  }
  absl::MutexLock lock(&mutex_);
  for (const Visit& visit : watchers_) {
    for (const auto& [key, entry] : taken) visit(key, entry);
  }
  return true;
}

bool BlockLoader::Holds(const BlockEntry& e) const {
  const Segment* segment = core_.space.Find(e.extent);
  if (segment == nullptr) return false;
  return e.record_bytes > 0 && e.record_bytes % kRecordAlignment == 0 && e.extent.offset % kRecordAlignment == 0 &&
         e.record_bytes <= segment->readable && e.extent.offset <= segment->readable - e.record_bytes;
}

// Goes on in the segment with the most room behind its last record. What may lie there was never acknowledged.
void BlockLoader::ResumeSegment() {
  Segment* best = nullptr;
  for (const auto& [id, segment] : core_.space.all()) {
    if (segment->state != Segment::State::kSealed || segment->live_bytes == 0) continue;
    if (segment->bytes - segment->appended < segment->bytes / kResumeDivisor) continue;
    if (best == nullptr || segment->bytes - segment->appended > best->bytes - best->appended) best = segment.get();
  }
  if (best != nullptr) core_.space.Resume(best, best->appended);
}

}  // namespace kvist
