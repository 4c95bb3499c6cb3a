#include "cachestore/tier/nvme_writer.h"

#include <optional>
#include <utility>

#include "fmt/format.h"

namespace kvist {
namespace {

// A group's bounds: enough to make two syncs cheap, little enough that an acknowledgement does not wait long.
constexpr std::size_t kGroupBlocksMax = 512;
constexpr std::uint64_t kGroupBytesMax = std::uint64_t{32} << 20;
// Neighbours are joined up to this: a device at full speed, and no long wait for a read that comes in between.
constexpr std::size_t kTransferBytesMax = std::size_t{1} << 20;

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
  committer_.Stop();
}

void NvmeWriter::Start(std::uint64_t newest_sequence) {
  {
    absl::MutexLock lock(&mutex_);
    sequence_ = newest_sequence;
  }
  committer_.Start();
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
  const bool failed = committer_.device_failed();
  if (refused.ok()) {
    absl::MutexLock lock(&mutex_);
    const auto it = pending_.find(block.key);
    if (failed || stopping_) {
      refused = stopping_ ? Closing() : DeviceFailed();
    } else if (it != pending_.end() && !it->second->cancelled) {
      it->second->done.push_back(std::move(done));
      return;
    } else if (it != pending_.end()) {
      refused = absl::CancelledError("the block was dropped a moment ago");
    } else if (pending_.size() >= core_.options.write_queue_limit) {
      refused = absl::ResourceExhaustedError(
          fmt::format("{} writes wait for the NVMe device: it is slower than what it is given", pending_.size()));
    } else {
      auto item = std::make_unique<Item>();
      item->block = block;
      item->sequence = ++sequence_;
      item->record = record;
      item->done.push_back(std::move(done));
      pending_[block.key] = item.get();
      queue_.push_back(std::move(item));
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

std::uint64_t NvmeWriter::pending() const {
  absl::MutexLock lock(&mutex_);
  return pending_.size();
}

void NvmeWriter::Run() {
  core_.loaded.WaitForNotification();
  for (;;) {
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(this, &NvmeWriter::HasWork));
      if (queue_.empty()) return;
    }
    committer_.Submit(TakeGroup());
  }
}

std::unique_ptr<WriteGroup> NvmeWriter::TakeGroup() {
  auto group = std::make_unique<WriteGroup>();
  std::uint64_t bytes = 0;
  while (group->items.size() < kGroupBlocksMax && bytes < kGroupBytesMax) {
    std::unique_ptr<Item> item;
    {
      absl::MutexLock lock(&mutex_);
      if (queue_.empty()) break;
      if (!group->items.empty() && queue_.front()->flush) break;
      item = std::move(queue_.front());
      queue_.pop_front();
    }
    if (item->flush) {
      group->items.push_back(std::move(item));
      break;
    }
    item->status = Admission(*item);
    if (item->status.ok() && !Append(*item)) {
      if (!group->items.empty()) {
        // What is in hand goes first: making room may have to wait until nothing is under way.
        absl::MutexLock lock(&mutex_);
        queue_.push_front(std::move(item));
        break;
      }
      item->status = space_maker_.EnsureRoom(item->record.size(), [this] { committer_.Drain(); });
      if (item->status.ok() && !Append(*item)) item->status = absl::InternalError("room was made and is not there");
    }
    bytes += item->record.size();
    group->items.push_back(std::move(item));
  }
  PrepareTransfers(*group);
  return group;
}

absl::Status NvmeWriter::Admission(const Item& item) const {
  if (item.cancelled) return absl::CancelledError("dropped");
  if (!core_.load_status.ok()) return core_.load_status;
  return committer_.device_failed() ? DeviceFailed() : absl::OkStatus();
}

bool NvmeWriter::Append(Item& item) {
  absl::MutexLock lock(&core_.mutex);
  const std::optional<ExtentStamp> extent = core_.space.Append(item.record.size());
  if (!extent) return false;
  item.extent = *extent;
  item.segment = core_.space.Find(*extent);
  core_.counters.bytes_accepted += item.record.size();
  return true;
}

void NvmeWriter::PrepareTransfers(WriteGroup& group) {
  const Item* last = nullptr;
  for (std::size_t i = 0; i < group.items.size(); ++i) {
    const Item& item = *group.items[i];
    if (item.segment == nullptr) continue;
    StampRecord(item.record, item.extent, item.block.expires_unix_s, item.sequence);
    const bool adjacent = last != nullptr && i == group.transfers.back().first + group.transfers.back().count &&
                          last->segment == item.segment &&
                          last->extent.offset + last->record.size() == item.extent.offset &&
                          last->record.data() + last->record.size() == item.record.data() &&
                          group.transfers.back().io.length + item.record.size() <= kTransferBytesMax;
    if (adjacent) {
      group.transfers.back().io.length += item.record.size();
      ++group.transfers.back().count;
    } else {
      WriteGroup::Transfer& transfer = group.transfers.emplace_back();
      transfer.first = i;
      transfer.count = 1;
      transfer.io.kind = IoRequest::Kind::kWrite;
      transfer.io.file = item.segment->file.get();
      transfer.io.offset = item.extent.offset;
      transfer.io.data = item.record.data();
      transfer.io.length = item.record.size();
    }
    last = &item;
  }
}

void NvmeWriter::Ended(const Item& item) {
  if (item.flush) return;
  absl::MutexLock lock(&mutex_);
  pending_.erase(item.block.key);
}

}  // namespace kvist
