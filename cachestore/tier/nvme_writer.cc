#include "cachestore/tier/nvme_writer.h"

#include <algorithm>
#include <utility>

#include "fmt/format.h"
#include "spdlog/spdlog.h"

namespace kvist {
namespace {

// A group's bounds: enough to make two syncs cheap, little enough that an acknowledgement does not wait long.
constexpr std::size_t kGroupBlocksMax = 512;
constexpr std::uint64_t kGroupBytesMax = std::uint64_t{128} << 20;
// So many failed syncs in a row, each on another segment: the device is not to be trusted with more.
constexpr std::uint32_t kSyncFailuresMax = 3;
// Entries per index batch of touches.
constexpr std::size_t kTouchBatchBlocks = 8192;

absl::Status Closing() { return absl::UnavailableError("the NVMe tier is closing"); }

absl::Status DeviceFailed() {
  return absl::UnavailableError(
      "the NVMe device failed to make writes durable several times in a row and takes no more; check it and restart");
}

}  // namespace

void NvmeWriter::Stop() {
  if (!thread_.joinable()) return;
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  thread_.join();
}

void NvmeWriter::Start(std::uint64_t newest_sequence) {
  {
    absl::MutexLock lock(&mutex_);
    sequence_ = newest_sequence;
  }
  thread_ = std::thread([this] { Run(); });
}

absl::Status NvmeWriter::Refusal(const NvmeBlock& block, std::span<std::byte> record) const {
  if (block.record_bytes == 0 || block.record_bytes % kRecordAlignment != 0 || record.size() != block.record_bytes ||
      reinterpret_cast<std::uintptr_t>(record.data()) % kRecordAlignment != 0 || block.key == block.parent) {
    return absl::InvalidArgumentError(fmt::format("a record must be aligned to {} bytes and whole; got {} of {} bytes",
                                                  kRecordAlignment, record.size(), block.record_bytes));
  }
  if (block.record_bytes > core_.segment_bytes) {
    return absl::InvalidArgumentError(
        fmt::format("a record of {} bytes does not fit a segment of {} bytes: raise the segment size (and the capacity "
                    "to at least {} segments)",
                    block.record_bytes, core_.segment_bytes, kSegmentsMin));
  }
  absl::ReaderMutexLock lock(&core_.mutex);
  if (core_.summary.Contains(block.key)) return absl::AlreadyExistsError("resident");
  return absl::OkStatus();
}

void NvmeWriter::Write(const NvmeBlock& block, std::span<std::byte> record, DoneStatus done) {
  absl::Status refused = Refusal(block, record);
  if (refused.ok()) {
    absl::MutexLock lock(&mutex_);
    const auto it = pending_.find(block.key);
    if (device_failed_ || stopping_) {
      refused = stopping_ ? Closing() : DeviceFailed();
    } else if (it != pending_.end() && !it->second->cancelled) {
      it->second->done.push_back(std::move(done));
      return;
    } else if (it != pending_.end()) {
      refused = absl::CancelledError("the block was dropped a moment ago");
    } else if (queued_writes_ >= core_.options.write_queue_limit) {
      refused = absl::ResourceExhaustedError(
          fmt::format("{} writes wait for the NVMe device: it is slower than what it is given", queued_writes_));
    } else {
      auto item = std::make_unique<Item>();
      item->block = block;
      item->sequence = ++sequence_;
      item->record = record;
      item->done.push_back(std::move(done));
      pending_[block.key] = item.get();
      queue_.push_back(std::move(item));
      ++queued_writes_;
      return;
    }
  }
  std::move(done)(std::move(refused));
}

void NvmeWriter::Flush(DoneStatus done) {
  auto item = std::make_unique<Item>();
  item->flush = true;
  absl::Status closed = Closing();
  item->done.push_back(std::move(done));
  {
    absl::MutexLock lock(&mutex_);
    // Nothing was written while blocks are loaded: closing the store need not wait for that. (Touches go at close.)
    const bool nothing = !core_.loaded.HasBeenNotified() && queue_.empty();
    if (!stopping_ && !nothing) {
      queue_.push_back(std::move(item));
      return;
    }
    if (nothing) closed = absl::OkStatus();
  }
  std::move(item->done[0])(std::move(closed));
}

void NvmeWriter::Wake() {
  absl::MutexLock lock(&mutex_);
  woken_ = true;
}

std::uint64_t NvmeWriter::pending() const {
  absl::MutexLock lock(&mutex_);
  return pending_.size();
}

void NvmeWriter::Run() {
  core_.loaded.WaitForNotification();
  for (;;) {
    bool idle = false;
    {
      absl::MutexLock lock(&mutex_);
      const bool work = mutex_.AwaitWithTimeout(absl::Condition(this, &NvmeWriter::HasWork), kTouchFlushInterval);
      if (stopping_ && queue_.empty()) break;
      idle = !work || std::exchange(woken_, false);
    }
    if (idle || SystemClock().Monotonic() - housekept_ >= kTouchFlushInterval) Housekeep();
    Group group = TakeGroup();
    if (group.empty()) continue;
    if (group[0]->flush) {
      absl::Status status = core_.FlushDeletes();
      status.Update(PersistTouches(IndexSync::kYes));
      group[0]->status = status;
    } else {
      CommitGroup(group);
    }
    Finish(std::move(group));
  }
  absl::Status status = core_.FlushDeletes();
  status.Update(PersistTouches(IndexSync::kYes));
  if (!status.ok()) spdlog::warn("closing the NVMe tier: {}", std::string(status.message()));
}

absl::Status NvmeWriter::CompactRemovals() {
  absl::MutexLock order(&core_.index_mutex);
  if (core_.removals == nullptr || !core_.removals->wants_compaction()) return absl::OkStatus();
  return core_.CompactRemovals();
}

void NvmeWriter::Housekeep() {
  housekept_ = SystemClock().Monotonic();
  absl::Status status = core_.FlushDeletes();
  status.Update(PersistTouches(IndexSync::kNo));
  status.Update(CompactRemovals());
  if (!status.ok()) spdlog::warn("NVMe tier: {}; it is tried again", std::string(status.message()));
}

std::unique_ptr<NvmeWriter::Item> NvmeWriter::PopFront() {
  std::unique_ptr<Item> item = std::move(queue_.front());
  queue_.pop_front();
  if (!item->flush) --queued_writes_;
  return item;
}

NvmeWriter::Group NvmeWriter::TakeGroup() {
  Group group;
  std::uint64_t bytes = 0;
  while (group.size() < kGroupBlocksMax && bytes < kGroupBytesMax) {
    std::unique_ptr<Item> item;
    {
      absl::MutexLock lock(&mutex_);
      if (queue_.empty()) break;
      if (!group.empty() && queue_.front()->flush) break;
      item = PopFront();
    }
    if (item->flush) {
      group.push_back(std::move(item));
      break;
    }
    if (!Place(*item, group.empty())) {
      // No room without cleaning, and cleaning wants nothing uncommitted: this one begins the next group.
      absl::MutexLock lock(&mutex_);
      queue_.push_front(std::move(item));
      ++queued_writes_;
      break;
    }
    bytes += item->record.size();
    group.push_back(std::move(item));
  }
  return group;
}

// False: not now. Otherwise the item is placed, or has a status that says why not.
bool NvmeWriter::Place(Item& item, bool first) {
  {
    absl::MutexLock lock(&mutex_);
    if (device_failed_) item.status = DeviceFailed();
    if (!core_.load_status.ok()) item.status = core_.load_status;
    if (item.cancelled) item.status = absl::CancelledError("dropped");
    if (!item.status.ok()) return true;
  }
  if (first) {
    item.status = space_maker_.EnsureRoom(item.record.size());
    if (!item.status.ok()) return true;
  }
  absl::MutexLock lock(&core_.mutex);
  const std::optional<ExtentStamp> extent = core_.space.Append(item.record.size());
  if (!extent) {
    if (first) item.status = absl::InternalError("room was made and is not there");
    return first;
  }
  item.extent = *extent;
  item.segment = core_.space.Find(*extent);
  core_.counters.bytes_accepted += item.record.size();
  return true;
}

void NvmeWriter::CommitGroup(Group& group) {
  WriteData(group);
  SyncData(group);
  CommitIndex(group);
}

void NvmeWriter::WriteData(Group& group) {
  std::vector<IoRequest*> requests;
  std::vector<Item*> written;
  for (auto& item : group) {
    if (!item->status.ok()) continue;
    StampRecord(item->record, item->extent, item->block.expires_unix_s, item->sequence);
    item->io.kind = IoRequest::Kind::kWrite;
    item->io.file = item->segment->file.get();
    item->io.offset = item->extent.offset;
    item->io.data = item->record.data();
    item->io.length = item->record.size();
    requests.push_back(&item->io);
    written.push_back(item.get());
  }
  const std::vector<absl::Status> results = RunAll(*core_.write_io, requests);
  absl::MutexLock lock(&core_.mutex);
  for (std::size_t i = 0; i < written.size(); ++i) {
    written[i]->status = results[i];
    if (results[i].ok()) {
      core_.counters.bytes_written += written[i]->record.size();
    } else if (!absl::IsResourceExhausted(results[i])) {
      ++core_.counters.device_errors;
    }
  }
}

// All records of a group lie in one segment, but for those placed after an EnsureRoom within it.
void NvmeWriter::SyncData(Group& group) {
  std::vector<Segment*> segments;
  for (auto& item : group) {
    if (item->status.ok() && std::find(segments.begin(), segments.end(), item->segment) == segments.end()) {
      segments.push_back(item->segment);
    }
  }
  for (Segment* segment : segments) {
    const absl::Status synced = core_.SyncSegment(segment);
    if (synced.ok()) {
      sync_failures_ = 0;
      continue;
    }
    spdlog::error("{}: what was written since the last sync is given up", std::string(synced.message()));
    for (auto& item : group) {
      if (item->segment == segment && item->status.ok()) item->status = synced;
    }
    if (++sync_failures_ >= kSyncFailuresMax) {
      absl::MutexLock lock(&mutex_);
      device_failed_ = true;
    }
  }
}

void NvmeWriter::CommitIndex(Group& group) {
  absl::MutexLock order(&core_.index_mutex);
  IndexBatch batch;
  std::vector<std::pair<Item*, BlockEntry>> good;
  {
    absl::MutexLock lock(&mutex_);
    for (auto& item : group) {
      if (item->status.ok() && item->cancelled) item->status = absl::CancelledError("dropped");
    }
  }
  GiveBackSpace(group);
  {
    absl::MutexLock lock(&core_.mutex);
    for (auto& item : group) {
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
void NvmeWriter::GiveBackSpace(Group& group) {
  absl::MutexLock lock(&core_.mutex);
  bool tail = true;
  for (auto item = group.rbegin(); item != group.rend(); ++item) {
    if ((*item)->segment == nullptr) continue;
    if ((*item)->status.ok()) {
      tail = false;
      continue;
    }
    core_.space.Abandoned((*item)->extent);
    if (tail) core_.space.Rollback((*item)->extent.segment, (*item)->extent.offset);
  }
}

void NvmeWriter::Finish(Group group) {
  {
    absl::MutexLock lock(&mutex_);
    for (auto& item : group) {
      if (!item->flush) pending_.erase(item->block.key);
    }
  }
  for (auto& item : group) {
    for (std::size_t i = 0; i < item->done.size(); ++i) {
      absl::Status status = item->status;
      if (i > 0 && status.ok()) status = absl::AlreadyExistsError("stored by another write meanwhile");
      std::move(item->done[i])(std::move(status));
    }
  }
}

absl::Status NvmeWriter::PersistTouches(IndexSync sync) {
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
