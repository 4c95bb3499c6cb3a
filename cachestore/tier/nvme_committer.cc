#include "cachestore/tier/nvme_committer.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "spdlog/spdlog.h"

namespace kvist {
namespace {

// While one is synced, which takes tens of milliseconds on a busy device, the others keep it writing.
constexpr std::size_t kGroupsInFlightMax = 8;
// Bounds an index batch, and so the time that a drop may wait for the index.
constexpr std::size_t kCommitBlocksMax = 1024;
// So many failed syncs in a row, each on another segment: the device is not to be trusted with more.
constexpr std::uint32_t kSyncFailuresMax = 3;
// Entries per index batch of touches.
constexpr std::size_t kTouchBatchBlocks = 8192;

}  // namespace

void NvmeCommitter::Start() {
  thread_ = std::thread([this] { Run(); });
}

void NvmeCommitter::Stop() {
  if (!thread_.joinable()) return;
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  thread_.join();
}

bool NvmeCommitter::HasRoom() const { return groups_.size() + (committing_ ? 1 : 0) < kGroupsInFlightMax; }

void NvmeCommitter::Submit(std::unique_ptr<WriteGroup> group) {
  WriteGroup* g = group.get();  // its transfers don't move, and it stays until they have ended
  std::vector<IoRequest*> requests;
  requests.reserve(g->transfers.size());
  for (WriteGroup::Transfer& transfer : g->transfers) {
    transfer.io.done = [this, g, &transfer](const absl::Status& status) { OnTransferred(g, transfer, status); };
    requests.push_back(&transfer.io);
  }
  g->writing = requests.size();
  {
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(this, &NvmeCommitter::HasRoom));
    groups_.push_back(std::move(group));
  }
  if (!requests.empty()) core_.write_io->Submit(requests);
}

void NvmeCommitter::OnTransferred(WriteGroup* group, const WriteGroup::Transfer& transfer, const absl::Status& status) {
  {
    absl::MutexLock lock(&core_.mutex);
    if (status.ok()) {
      core_.counters.bytes_written += transfer.io.length;
    } else if (!absl::IsResourceExhausted(status)) {
      ++core_.counters.device_errors;
    }
  }
  for (std::size_t i = 0; i < transfer.count; ++i) group->items[transfer.first + i]->status = status;
  absl::MutexLock lock(&mutex_);  // the last one lets go of the group by letting go of the lock
  --group->writing;
}

void NvmeCommitter::Drain() {
  absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(this, &NvmeCommitter::IsIdle));
}

void NvmeCommitter::Wake() {
  absl::MutexLock lock(&mutex_);
  woken_ = true;
}

bool NvmeCommitter::device_failed() const {
  absl::MutexLock lock(&mutex_);
  return device_failed_;
}

void NvmeCommitter::Run() {
  core_.loaded.WaitForNotification();
  for (;;) {
    Items items;
    bool idle = false;
    {
      absl::MutexLock lock(&mutex_);
      const bool work = mutex_.AwaitWithTimeout(absl::Condition(this, &NvmeCommitter::HasWork), kTouchFlushInterval);
      if (stopping_ && groups_.empty()) break;
      idle = !work || (groups_.empty() && std::exchange(woken_, false));
      if (IsWritten()) items = TakeWritten();
      committing_ = !items.empty();
    }
    if (idle || SystemClock().Monotonic() - housekept_ >= kTouchFlushInterval) Housekeep();
    if (items.empty()) continue;
    if (items[0]->flush) {
      items[0]->status = FlushIndex();
    } else {
      SyncData(items);
      CommitIndex(items);
    }
    bool busy = false;
    {
      absl::MutexLock lock(&mutex_);
      busy = !groups_.empty();
    }
    Finish(std::move(items));
    if (busy) hooks_.busy();
    absl::MutexLock lock(&mutex_);
    committing_ = false;
  }
  if (absl::Status status = FlushIndex(); !status.ok()) {
    spdlog::warn("closing the NVMe tier: {}", std::string(status.message()));
  }
}

NvmeCommitter::Items NvmeCommitter::TakeWritten() {
  Items items;
  while (IsWritten()) {
    WriteGroup& group = *groups_.front();
    const bool flush = group.items[0]->flush;
    if (!items.empty() && (flush || items.size() + group.items.size() > kCommitBlocksMax)) break;
    std::move(group.items.begin(), group.items.end(), std::back_inserter(items));
    groups_.pop_front();
    if (flush) break;
  }
  return items;
}

absl::Status NvmeCommitter::FlushIndex() {
  absl::Status status = core_.FlushDeletes();
  status.Update(PersistTouches(IndexSync::kYes));
  return status;
}

absl::Status NvmeCommitter::CompactRemovals() {
  absl::MutexLock order(&core_.index_mutex);
  if (core_.removals == nullptr || !core_.removals->wants_compaction()) return absl::OkStatus();
  return core_.CompactRemovals();
}

void NvmeCommitter::Housekeep() {
  housekept_ = SystemClock().Monotonic();
  absl::Status status = core_.FlushDeletes();
  status.Update(PersistTouches(IndexSync::kNo));
  status.Update(CompactRemovals());
  if (!status.ok()) spdlog::warn("NVMe tier: {}; it is tried again", std::string(status.message()));
}

// Records lie in one segment, or in two where a segment ended.
void NvmeCommitter::SyncData(Items& items) {
  std::vector<Segment*> segments;
  for (auto& item : items) {
    if (item->status.ok() && std::find(segments.begin(), segments.end(), item->segment) == segments.end()) {
      segments.push_back(item->segment);
    }
  }
  for (Segment* segment : segments) {
    const bool failed_before = core_.HasFailed(segment);
    const absl::Status synced = core_.SyncSegment(segment);
    if (synced.ok()) {
      sync_failures_ = 0;
      continue;
    }
    spdlog::error("{}: what was written since the last sync is given up", std::string(synced.message()));
    for (auto& item : items) {
      if (item->segment == segment && item->status.ok()) item->status = synced;
    }
    if (!failed_before && ++sync_failures_ >= kSyncFailuresMax) {
      absl::MutexLock lock(&mutex_);
      device_failed_ = true;
    }
  }
}

void NvmeCommitter::CommitIndex(Items& items) {
  absl::MutexLock order(&core_.index_mutex);
  IndexBatch batch;
  std::vector<std::pair<WriteItem*, BlockEntry>> good;
  for (auto& item : items) {
    if (item->status.ok() && item->cancelled) item->status = absl::CancelledError("dropped");
  }
  GiveBackSpace(items);
  {
    absl::MutexLock lock(&core_.mutex);
    for (auto& item : items) {
      if (!item->status.ok()) continue;
      if (core_.summary.Contains(item->block.key)) {  // committed between the look and the queue
        core_.space.Abandoned(item->extent);
        item->status = absl::AlreadyExistsError("resident");
        continue;
      }
      BlockEntry entry;
      entry.ns = item->block.ns;
      entry.parent = item->block.parent;
      entry.extent = item->extent;
      entry.record_bytes = item->record.size();
      entry.expires_unix_s = item->block.expires_unix_s;
      entry.used = core_.summary.NextUse();
      entry.pins = item->block.pins;
      batch.put_blocks.emplace_back(item->block.key, entry);
      batch.newest_sequence = std::max(batch.newest_sequence.value_or(0), item->sequence);
      good.emplace_back(item.get(), entry);
    }
  }
  if (good.empty()) return;
  batch.newest_time = core_.options.clock->Wall();
  const absl::Status applied = core_.ApplyWithDeletes(std::move(batch));
  absl::MutexLock lock(&core_.mutex);
  for (auto& [item, entry] : good) {
    if (applied.ok()) {
      core_.space.Committed(item->extent, *core_.summary.Insert(item->block.key, entry), entry.record_bytes);
    } else {
      // The batch may come back after a crash: nothing else may be written to its extents in this generation.
      core_.space.Abandoned(item->extent);
      item->status = applied;
    }
  }
}

// Failed records take no space: a full disk must not use segments up. (Only the tail can be taken back.)
void NvmeCommitter::GiveBackSpace(Items& items) {
  absl::MutexLock lock(&core_.mutex);
  for (auto& item : items) {
    if (item->segment == nullptr || item->status.ok()) continue;
    core_.space.Abandoned(item->extent);
    core_.space.GiveBack(item->extent, item->record.size());
  }
}

void NvmeCommitter::Finish(Items items) {
  for (auto& item : items) hooks_.ended(*item);
  for (auto& item : items) {
    for (std::size_t i = 0; i < item->done.size(); ++i) {
      absl::Status status = item->status;
      if (i > 0 && status.ok()) status = absl::AlreadyExistsError("stored by another write meanwhile");
      std::move(item->done[i])(std::move(status));
    }
  }
}

absl::Status NvmeCommitter::PersistTouches(IndexSync sync) {
  for (;;) {
    absl::MutexLock order(&core_.index_mutex);
    IndexBatch batch;
    {
      absl::MutexLock lock(&core_.mutex);
      batch.put_blocks = core_.summary.TakeDirty(kTouchBatchBlocks);
    }
    if (batch.put_blocks.empty()) return absl::OkStatus();
    batch.newest_time = core_.options.clock->Wall();
    if (absl::Status status = core_.index->Apply(batch, sync); !status.ok()) {
      absl::MutexLock lock(&core_.mutex);
      core_.summary.MarkDirty(batch.put_blocks);
      return status;
    }
  }
}

}  // namespace kvist
