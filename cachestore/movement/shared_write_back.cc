#include "cachestore/movement/shared_write_back.h"

#include <utility>

#include "cachestore/movement/write_back.h"
#include "cachestore/tier/block_record.h"
#include "cachestore/tier/nvme_core.h"

namespace kvist {

void SharedWriteBack::Offer(const NamespaceId& ns, std::span<const BlockKey> keys, absl::Time expires) {
  {
    absl::MutexLock lock(&mutex_);
    if (closed_ || gates_.contains(ns)) return;
    const absl::Time now = clock_->Wall();
    const absl::Time good_enough = expires - (expires - now) / kRefreshShare;
    for (const BlockKey& key : keys) {
      if (const auto it = known_.find(key); it != known_.end() && it->second >= good_enough) continue;
      if (const auto it = items_.find(key); it != items_.end()) {
        it->second->expires = std::max(it->second->expires, expires);
        continue;
      }
      if (queue_.size() >= kQueueMax) {
        ++dropped_;
        continue;
      }
      auto item = std::make_shared<Item>();
      item->name = {ns, key};
      item->expires = expires;
      items_.emplace(key, item);
      queue_.push_back(std::move(item));
    }
  }
  Pump();
}

void SharedWriteBack::Pump() {
  {
    absl::MutexLock lock(&mutex_);
    if (pumping_ || closed_) return;
    pumping_ = true;
  }
  while (true) {
    ItemRef item;
    absl::Time expires;
    {
      absl::MutexLock lock(&mutex_);
      if (closed_ || queue_.empty() || in_flight_ >= kInFlightMax) {
        pumping_ = false;
        return;
      }
      item = std::move(queue_.front());
      queue_.pop_front();
      ++in_flight_;
      ++steps_;
      expires = item->expires;
    }
    shared_->Refresh(item->name, expires, [this, item](const absl::Status& status) { OnRefreshed(item, status); });
    EndStep();
  }
}

void SharedWriteBack::OnRefreshed(const ItemRef& item, const absl::Status& status) {
  if (!absl::IsNotFound(status)) return End(item, status);
  if (!BeginStep()) return End(item, absl::CancelledError("the store is closing"));
  if (const DramBlockRef block = dram_->Find(item->name.key); block != nullptr && block->ns() == item->name.ns) {
    PutFromDram(item, block);
  } else {
    PutFromNvme(item);
  }
  EndStep();
}

void SharedWriteBack::PutFromDram(const ItemRef& item, const DramBlockRef& block) {
  const std::size_t header_bytes = block->shape().header_bytes();
  ObjectRecord record{.header = std::vector<std::byte>(header_bytes),
                      .payload = {block->record().subspan(header_bytes), block}};
  // The NVMe tier may be stamping the record in DRAM just now.
  CopyRecordHeader(block->record(), block->shape(), record.header);
  Put(item, std::move(record));
}

void SharedWriteBack::PutFromNvme(const ItemRef& item) {
  const std::optional<NvmeBlock> below = nvme_->Find(item->name.key);
  if (!below || below->ns != item->name.ns) return End(item, absl::NotFoundError("the block has left this store"));
  const auto memory = std::make_shared<AlignedBuffer>(below->record_bytes);
  nvme_->Read(item->name.key, memory->bytes(), [this, item, memory](const absl::Status& status) {
    if (!status.ok()) return End(item, status);
    if (!BeginStep()) return End(item, absl::CancelledError("the store is closing"));
    const absl::StatusOr<RecordHeader> header = ReadRecordHeader(memory->bytes());
    if (!header.ok() || header->ns != item->name.ns) {
      End(item, absl::DataLossError("the NVMe tier's record is of another block"));
    } else {
      const std::size_t header_bytes = header->shape.header_bytes();
      const auto head = memory->bytes().first(header_bytes);
      Put(item, {.header = {head.begin(), head.end()}, .payload = {memory->bytes().subspan(header_bytes), memory}});
    }
    EndStep();
  });
}

void SharedWriteBack::Put(const ItemRef& item, ObjectRecord record) {
  absl::Time expires;
  {
    absl::MutexLock lock(&mutex_);
    expires = item->expires;
  }
  StampRecord(record.header, {}, ExpiryToUnixSeconds(expires), /*sequence=*/0);
  shared_->Put(item->name, std::move(record), expires, [this, item](const absl::Status& status) { End(item, status); });
}

void SharedWriteBack::End(const ItemRef& item, const absl::Status& status) {
  std::vector<std::shared_ptr<Join>> waiters;
  {
    absl::MutexLock lock(&mutex_);
    --in_flight_;
    items_.erase(item->name.key);
    waiters = std::move(item->waiters);
    if (status.ok() && !gates_.contains(item->name.ns)) {
      if (known_.size() >= kKnownMax) known_.clear();
      known_[item->name.key] = item->expires;
    } else if (!status.ok()) {
      ++dropped_;
    }
  }
  waiters.clear();
  Pump();
}

void SharedWriteBack::Flush(DoneStatus done) {
  const auto join = std::make_shared<Join>(std::move(done));  // outlives the lock below
  absl::MutexLock lock(&mutex_);
  for (const auto& [key, item] : items_) item->waiters.push_back(join);
}

void SharedWriteBack::CloseGate(const std::vector<NamespaceId>& namespaces, DoneStatus settled) {
  const auto join = std::make_shared<Join>(std::move(settled));
  std::vector<ItemRef> given_up;  // their waiters run outside the lock
  absl::MutexLock lock(&mutex_);
  for (const NamespaceId& ns : namespaces) ++gates_[ns];
  std::erase_if(queue_, [&](const ItemRef& item) {
    mutex_.AssertHeld();
    if (!gates_.contains(item->name.ns)) return false;
    items_.erase(item->name.key);
    given_up.push_back(item);
    return true;
  });
  for (const auto& [key, item] : items_) {
    if (gates_.contains(item->name.ns)) item->waiters.push_back(join);
  }
  known_.clear();  // it doesn't tell namespaces apart
}

void SharedWriteBack::OpenGate(const std::vector<NamespaceId>& namespaces) {
  absl::MutexLock lock(&mutex_);
  for (const NamespaceId& ns : namespaces) {
    if (const auto it = gates_.find(ns); it != gates_.end() && --it->second == 0) gates_.erase(it);
  }
}

void SharedWriteBack::Close() {
  std::vector<std::shared_ptr<Join>> waiters;
  {
    absl::MutexLock lock(&mutex_);
    closed_ = true;
    dropped_ += queue_.size();
    for (const ItemRef& item : queue_) {
      items_.erase(item->name.key);
      for (auto& waiter : item->waiters) waiters.push_back(std::move(waiter));
    }
    queue_.clear();
    mutex_.Await(absl::Condition(
        +[](std::size_t* steps) { return *steps == 0; }, &steps_));
  }
}

bool SharedWriteBack::BeginStep() {
  absl::MutexLock lock(&mutex_);
  if (closed_) return false;
  ++steps_;
  return true;
}

void SharedWriteBack::EndStep() {
  absl::MutexLock lock(&mutex_);
  --steps_;
}

std::uint64_t SharedWriteBack::pending() const {
  absl::MutexLock lock(&mutex_);
  return items_.size();
}

std::uint64_t SharedWriteBack::dropped() const {
  absl::MutexLock lock(&mutex_);
  return dropped_;
}

}  // namespace kvist
