#include "cachestore/movement/promotion.h"

#include <utility>

namespace kvist {

void Promotion::Fetch(const NamespaceId& ns, const BlockKey& key, const RecordShape& shape, absl::Time expires,
                      Done<DramBlockRef> done) {
  const std::uint64_t epoch = dram_->drop_epoch();
  absl::StatusOr<DramBlockRef> block = nullptr;
  {
    absl::MutexLock lock(&mutex_);
    if (const auto it = reads_.find(key); it != reads_.end()) {
      it->second.push_back(std::move(done));
      return;
    }
    // A read that has just ended published its block before it left reads_.
    if (DramBlockRef resident = dram_->Find(key); resident != nullptr) {
      block = std::move(resident);
    } else if (block = dram_->Allocate(ns, shape); block.ok()) {
      reads_[key].push_back(std::move(done));
      done = nullptr;
    }
  }
  if (done) {
    std::move(done)(std::move(block));
    return;
  }
  const std::span<std::byte> record = (*block)->record();
  nvme_->Read(key, record, [this, block = *std::move(block), key, expires, epoch](absl::Status status) mutable {
    const absl::StatusOr<DramBlockRef> result = OnRead(std::move(block), key, expires, epoch, status);
    Waiters waiters;
    {
      absl::MutexLock lock(&mutex_);
      const auto it = reads_.find(key);
      waiters = std::move(it->second);
      reads_.erase(it);
    }
    for (Done<DramBlockRef>& waiter : waiters) std::move(waiter)(result);
  });
}

absl::StatusOr<DramBlockRef> Promotion::OnRead(DramBlockRef block, const BlockKey& key, absl::Time expires,
                                               std::uint64_t epoch, const absl::Status& status) {
  if (!status.ok()) return status;
  // The tier verified the record against the key asked for; that it is of this namespace and shape is ours to know.
  const absl::StatusOr<RecordHeader> header = ReadRecordHeader(block->record());
  if (!header.ok() || header->ns != block->ns() || header->key != key || header->shape != block->shape()) {
    dram_->CountCorrupt();
    return absl::DataLossError("the NVMe tier's record is of another block");
  }
  const std::span<const TokenId> tokens = RecordTokens(block->record());
  auto published = dram_->Publish(std::move(block), key, header->parent, tokens, BlockState::kBelow, expires, epoch);
  if (!published.ok()) return published.status();
  return std::move(published->block);
}

}  // namespace kvist
