#include "cachestore/movement/write_back.h"

#include <algorithm>
#include <utility>

#include "cachestore/movement/join.h"
#include "spdlog/spdlog.h"

namespace kvist {
namespace {

// Longer than any prompt; ends the walk if a damaged index should hold a cycle.
constexpr std::size_t kChainBlocksMax = std::size_t{1} << 20;

}  // namespace

std::int64_t ExpiryToUnixSeconds(absl::Time expires) {
  return absl::ToUnixSeconds(expires + absl::Seconds(1) - absl::Nanoseconds(1));
}

bool WriteBack::ChainBelow(const NamespaceId& ns, BlockKey key) const {
  for (std::size_t i = 0; i < kChainBlocksMax; ++i) {
    const std::optional<NvmeBlock> block = nvme_->Find(key);
    if (!block || block->ns != ns) return false;
    if (block->parent == ns) return true;
    key = block->parent;
  }
  return false;
}

void WriteBack::Enqueue(const DramBlockRef& block, DoneStatus done) {
  absl::Status status;
  {
    absl::MutexLock lock(&mutex_);
    WriteRef write;
    if (const auto it = writes_.find(block->key()); it != writes_.end()) {
      write = it->second;
    } else if (ChainBelow(block->ns(), block->key())) {
      dram_->SetState(*block, BlockState::kBelow);
    } else if ((write = Add(block)) == nullptr) {
      dram_->SetState(*block, BlockState::kDramOnly);
      status = absl::NotFoundError("the block or its parent was dropped before it could be written");
      ++failed_;
    }
    if (write != nullptr) {
      if (done) write->waiters.push_back(std::move(done));
      done = nullptr;
    }
  }
  if (done) std::move(done)(status);
  Pump();
}

WriteBack::WriteRef WriteBack::Add(const DramBlockRef& block) {
  const NamespaceId& ns = block->ns();
  std::vector<DramBlockRef> chain{block};  // upwards
  WriteRef above;
  while (true) {
    // A drop takes blocks out of DRAM before it cancels writes, so what is resident now will be cancelled by it.
    if (dram_->Find(chain.back()->key()) != chain.back()) return nullptr;
    const BlockKey& parent = chain.back()->parent();
    if (parent == ns) break;
    if (const auto it = writes_.find(parent); it != writes_.end()) {
      above = it->second;
      break;
    }
    if (ChainBelow(ns, parent)) break;
    DramBlockRef next = dram_->Find(parent);
    if (next == nullptr) return nullptr;
    chain.push_back(std::move(next));
  }
  for (auto it = chain.rbegin(); it != chain.rend(); ++it) {
    auto write = std::make_shared<Write>();
    write->block = *it;
    write->parent_pending = above != nullptr;
    if (above != nullptr) above->children.push_back(write);
    dram_->SetState(**it, BlockState::kWriting);
    writes_.emplace((*it)->key(), write);
    queue_.push_back(write);
    above = std::move(write);
  }
  return above;
}

void WriteBack::Pump() {
  // One thread at a time submits; a completion that runs inside Submit comes back here and leaves at once.
  {
    absl::MutexLock lock(&mutex_);
    if (pumping_) return;
    pumping_ = true;
  }
  while (true) {
    WriteRef write;
    {
      absl::MutexLock lock(&mutex_);
      while (!queue_.empty() && queue_.front()->own) queue_.pop_front();  // given up meanwhile
      if (queue_.empty() || in_flight_ >= kInFlightMax) {
        pumping_ = false;
        return;
      }
      write = std::move(queue_.front());
      queue_.pop_front();
      write->submitted = true;
      ++in_flight_;
    }
    Submit(write);
  }
}

void WriteBack::Submit(const WriteRef& write) {
  const DramBlock& block = *write->block;
  write->expires = dram_->Expiry(block.key());
  const NvmeBlock target{.ns = block.ns(),
                         .key = block.key(),
                         .parent = block.parent(),
                         .record_bytes = block.record().size(),
                         .expires_unix_s = ExpiryToUnixSeconds(write->expires),
                         .pins = dram_->Pins(block.key())};
  nvme_->Write(target, block.record(), [this, write](absl::Status status) { OnWritten(write, std::move(status)); });
}

void WriteBack::OnWritten(const WriteRef& write, absl::Status status) {
  Outcome outcome;
  {
    absl::MutexLock lock(&mutex_);
    --in_flight_;
    write->to_take_back = status.ok();
    if (absl::IsAlreadyExists(status)) status = absl::OkStatus();
    // That is what "left the store" looks like, and nothing else may.
    if (absl::IsNotFound(status)) status = absl::UnavailableError(status.message());
    // A drop's doing, not the caller's.
    if (absl::IsCancelled(status)) status = absl::NotFoundError("the block was dropped before it was written");
    write->own = std::move(status);
    Resolve(write, outcome);
  }
  Carry(std::move(outcome));
  Pump();
}

absl::Status WriteBack::FinalStatus(const Write& write) const {
  if (!write.own->ok()) return *write.own;
  if (!write.above.ok()) return write.above;
  const DramBlock& block = *write.block;
  if (block.parent() != block.ns() && !nvme_->Find(block.parent())) {
    return absl::NotFoundError("the parent left the NVMe tier before the block was written");
  }
  return absl::OkStatus();
}

void WriteBack::Resolve(WriteRef first, Outcome& outcome) {
  std::vector<WriteRef> open{std::move(first)};
  while (!open.empty()) {
    const WriteRef write = std::move(open.back());
    open.pop_back();
    if (!write->own && !write->submitted && !write->above.ok()) write->own = write->above;
    if (!write->own || write->parent_pending) continue;
    const absl::Status status = FinalStatus(*write);
    if (!status.ok() && write->to_take_back) {
      // Stays under way until it is gone from below, so that nobody counts on it meanwhile.
      write->to_take_back = false;
      write->own = status;
      outcome.take_back.push_back(write);
      continue;
    }
    // Whoever waited finds its memory free once nothing else holds it, though the write itself lives a moment longer.
    const DramBlockRef block = std::move(write->block);
    const BlockKey key = block->key();
    writes_.erase(key);
    dram_->SetState(*block, status.ok() ? BlockState::kBelow : BlockState::kDramOnly);
    if (!status.ok()) ++failed_;
    if (status.ok() && on_durable_) outcome.durable.push_back(block);
    if (const absl::Time expires = dram_->Expiry(key); status.ok() && expires > write->expires) {
      outcome.touches.emplace_back(key, expires);
    }
    for (DoneStatus& waiter : write->waiters) outcome.calls.emplace_back(std::move(waiter), status);
    for (WriteRef& child : write->children) {
      child->parent_pending = false;
      child->above = status;
      open.push_back(std::move(child));
    }
    write->children.clear();
  }
}

void WriteBack::Carry(Outcome outcome) {
  for (const auto& [key, expires] : outcome.touches) nvme_->Touch({&key, 1}, ExpiryToUnixSeconds(expires));
  for (const DramBlockRef& block : std::exchange(outcome.durable, {})) on_durable_(*block);
  for (auto& [done, status] : outcome.calls) std::move(done)(std::move(status));
  if (outcome.take_back.empty()) return;
  worker_->Post([this, writes = std::move(outcome.take_back)] {
    std::vector<BlockKey> keys;
    for (const WriteRef& write : writes) keys.push_back(write->block->key());
    if (const auto dropped = nvme_->Drop(keys); !dropped.ok()) {
      spdlog::warn("{} blocks without their parent stay on NVMe, unreachable, until they expire: {}", keys.size(),
                   std::string(dropped.status().message()));
    }
    Outcome ended;
    {
      absl::MutexLock lock(&mutex_);
      for (const WriteRef& write : writes) Resolve(write, ended);
    }
    Carry(std::move(ended));
  });
}

void WriteBack::Cancel(const std::function<bool(const NamespaceId&)>& matches) {
  Outcome outcome;
  {
    absl::MutexLock lock(&mutex_);
    std::vector<WriteRef> given_up;
    for (const WriteRef& write : queue_) {
      if (!write->own && matches(write->block->ns())) given_up.push_back(write);
    }
    for (const WriteRef& write : given_up) {
      if (!write->own) write->own = absl::NotFoundError("the block was dropped before it was written");
      Resolve(write, outcome);
    }
  }
  Carry(std::move(outcome));
}

void WriteBack::Flush(DoneStatus done) {
  const auto join = std::make_shared<Join>(std::move(done));  // outlives the lock below
  absl::MutexLock lock(&mutex_);
  for (const auto& [key, write] : writes_) {
    // What left the store before it was written (dropped, or its parent expired or evicted) needs no writing.
    write->waiters.emplace_back([join](const absl::Status& status) {
      if (!absl::IsNotFound(status)) join->Report(status);
    });
  }
}

std::uint64_t WriteBack::pending() const {
  absl::MutexLock lock(&mutex_);
  return writes_.size();
}

std::uint64_t WriteBack::failed() const {
  absl::MutexLock lock(&mutex_);
  return failed_;
}

}  // namespace kvist
