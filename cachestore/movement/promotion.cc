#include "cachestore/movement/promotion.h"

#include <utility>

namespace kvist {

void Promotion::Fetch(const Wanted& wanted, Done<Fetched> done) {
  const std::uint64_t epoch = dram_->drop_epoch();
  const bool below = shared_ == nullptr || nvme_->Find(wanted.key).has_value();
  absl::StatusOr<DramBlockRef> block = nullptr;
  {
    absl::MutexLock lock(&mutex_);
    if (const auto it = reads_.find(wanted.key); it != reads_.end()) {
      it->second.push_back(std::move(done));
      return;
    }
    // A read that has just ended published its block before it left reads_.
    if (DramBlockRef resident = dram_->Find(wanted.key); resident != nullptr) {
      block = std::move(resident);
    } else if (block = dram_->Allocate(wanted.ns, wanted.shape); block.ok()) {
      reads_[wanted.key].push_back(std::move(done));
      done = nullptr;
    }
  }
  if (done) {
    if (!block.ok()) return std::move(done)(block.status());
    return std::move(done)(Fetched{*std::move(block), below ? Tier::kNvme : Tier::kShared});
  }
  below ? ReadNvme(wanted, *std::move(block), epoch) : ReadShared(wanted, *std::move(block), epoch);
}

void Promotion::ReadNvme(const Wanted& wanted, DramBlockRef block, std::uint64_t epoch) {
  const std::span<std::byte> record = block->record();
  nvme_->Read(wanted.key, record, [this, wanted, block = std::move(block), epoch](const absl::Status& status) mutable {
    // Gone or damaged here; another machine's copy is as good.
    if (!status.ok() && shared_ != nullptr) return ReadShared(wanted, std::move(block), epoch);
    Finish(wanted, std::move(block), Tier::kNvme, epoch, status);
  });
}

void Promotion::ReadShared(const Wanted& wanted, DramBlockRef block, std::uint64_t epoch) {
  // The tier holds the block, too: should this be given up, its memory is not used again before that is safe.
  OwnedBytes into{block->record(), block};
  shared_->Get({wanted.ns, wanted.key}, std::move(into), wanted.shared_time,
               [this, wanted, block = std::move(block), epoch](const absl::Status& status) mutable {
                 Finish(wanted, std::move(block), Tier::kShared, epoch, status);
               });
}

void Promotion::Finish(const Wanted& wanted, DramBlockRef block, Tier from, std::uint64_t epoch,
                       const absl::Status& status) {
  const absl::StatusOr<DramBlockRef> result = OnRead(std::move(block), wanted, epoch, status);
  Waiters waiters;
  {
    absl::MutexLock lock(&mutex_);
    const auto it = reads_.find(wanted.key);
    waiters = std::move(it->second);
    reads_.erase(it);
  }
  for (Done<Fetched>& waiter : waiters) {
    result.ok() ? std::move(waiter)(Fetched{*result, from}) : std::move(waiter)(result.status());
  }
}

absl::StatusOr<DramBlockRef> Promotion::OnRead(DramBlockRef block, const Wanted& wanted, std::uint64_t epoch,
                                               const absl::Status& status) {
  if (!status.ok()) return status;
  // The tier verified the record against the key asked for; that it is of this namespace and shape is ours to know.
  const absl::StatusOr<RecordHeader> header = ReadRecordHeader(block->record());
  if (!header.ok() || header->ns != block->ns() || header->key != wanted.key || header->shape != block->shape()) {
    dram_->CountCorrupt();
    return absl::DataLossError("the record is of another block");
  }
  const std::span<const TokenId> tokens = RecordTokens(block->record());
  auto published =
      dram_->Publish(std::move(block), wanted.key, header->parent, tokens, BlockState::kBelow, wanted.expires, epoch);
  if (!published.ok()) return published.status();
  return std::move(published->block);
}

}  // namespace kvist
