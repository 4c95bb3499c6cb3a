#include "cachestore/movement/acquisition.h"

#include <algorithm>
#include <utility>

#include "cachestore/movement/write_back.h"

namespace kvist {

void Acquisition::Start(const Parts& parts, Request request, std::span<const TokenId> tokens,
                        std::shared_ptr<Call> call, std::shared_ptr<void> alive) {
  auto self = std::make_shared<Acquisition>(parts, std::move(request), std::move(call), std::move(alive));
  const Request& of = self->request_;
  self->blocks_ = parts.dram->Lease(of.ns, of.keys, tokens, of.now);
  self->sources_.assign(self->blocks_.size(), Tier::kDram);
  const std::size_t reachable = self->Reachable();
  const bool all_here = std::find(self->blocks_.begin(), self->blocks_.begin() + static_cast<std::ptrdiff_t>(reachable),
                                  nullptr) == self->blocks_.begin() + static_cast<std::ptrdiff_t>(reachable);
  {
    absl::MutexLock lock(&self->mutex_);
    self->limit_ = reachable;
    if (all_here) self->next_ = reachable;
  }
  if (!all_here) self->tokens_.assign(tokens.begin(), tokens.end());
  self->Pump();
}

std::size_t Acquisition::Reachable() const {
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    if (blocks_[i] != nullptr) continue;
    const std::optional<NvmeBlock> below = parts_.nvme->Find(request_.keys[i]);
    const bool good = below && below->ns == request_.ns && below->record_bytes == request_.shape.record_bytes() &&
                      !ExpiredBelow(*below, request_.now);
    if (!good) return i;
  }
  return blocks_.size();
}

void Acquisition::Pump() {
  {
    absl::MutexLock lock(&mutex_);
    if (pumping_ || finished_) return;
    pumping_ = true;
  }
  const std::shared_ptr<Acquisition> self = shared_from_this();
  while (true) {
    std::size_t index = 0;
    {
      absl::MutexLock lock(&mutex_);
      if (call_->over()) {  // nobody waits: begin nothing more
        limit_ = std::min(limit_, next_);
        again_.clear();
      }
      std::erase_if(again_, [limit = limit_](std::size_t i) { return i >= limit; });
      while (next_ < limit_ && blocks_[next_] != nullptr) ++next_;
      if ((next_ >= limit_ && again_.empty()) || in_flight_ >= kFetchesInFlightMax) {
        pumping_ = false;
        if (in_flight_ > 0) return;
        finished_ = true;
        break;
      }
      if (again_.empty()) {
        index = next_++;
      } else {
        index = again_.back();
        again_.pop_back();
      }
      ++in_flight_;
    }
    parts_.promotion->Fetch(request_.ns, request_.keys[index], request_.shape, request_.expires,
                            [self, index](absl::StatusOr<DramBlockRef> block) {
                              self->OnFetched(index, std::move(block));
                            });
  }
  Finish();
}

void Acquisition::OnFetched(std::size_t index, absl::StatusOr<DramBlockRef> block) {
  const std::size_t count = request_.shape.block_tokens;
  bool good = block.ok();
  if (good && !RecordTokensEqual((*block)->record(), std::span(tokens_).subspan(index * count, count))) {
    parts_.dram->CountCorrupt();
    good = false;
  }
  if (good) parts_.dram->Lease(*block);
  {
    absl::MutexLock lock(&mutex_);
    --in_flight_;
    if (good) {
      blocks_[index] = *std::move(block);
      sources_[index] = Tier::kNvme;
    } else if (absl::IsResourceExhausted(block.status()) && YieldTail(index)) {
      again_.push_back(index);
    } else {
      limit_ = std::min(limit_, index);
    }
  }
  Pump();
}

bool Acquisition::YieldTail(std::size_t after) {
  for (std::size_t last = limit_; last > after + 1; --last) {
    if (blocks_[last - 1] == nullptr) continue;
    const DramBlockRef given_up = std::move(blocks_[last - 1]);
    blocks_[last - 1] = nullptr;
    limit_ = last - 1;
    parts_.dram->Release({&given_up, 1});
    return true;
  }
  return false;
}

void Acquisition::Finish() {
  std::size_t count = 0;
  {
    absl::MutexLock lock(&mutex_);
    count = limit_;
  }
  if (call_->over()) return;
  const std::span<const BlockKey> keys = std::span(request_.keys).first(count);
  if (count > 0) {
    parts_.dram->Touch(keys, request_.expires);
    parts_.nvme->Touch(keys, ExpiryToUnixSeconds(request_.expires));
  }
  std::vector<Lease::Block> leased;
  leased.reserve(count);
  std::uint64_t from_nvme = 0;
  for (std::size_t i = 0; i < count; ++i) {
    leased.push_back({keys[i], sources_[i], blocks_[i]->payload()});
    from_nvme += sources_[i] == Tier::kNvme ? 1 : 0;
  }
  parts_.hits->dram += count - from_nvme;
  parts_.hits->nvme += from_nvme;
  parts_.hits->miss += request_.keys.size() - count;

  std::vector<DramBlockRef> held(std::make_move_iterator(blocks_.begin()),
                                 std::make_move_iterator(blocks_.begin() + static_cast<std::ptrdiff_t>(count)));
  auto pin = count > 0 ? std::make_shared<DramLease>(parts_.dram, std::move(held)) : nullptr;
  parts_.dram->Release(blocks_);  // beyond the lease; those in it are null now
  blocks_.clear();
  call_->Complete(Lease(std::move(leased), std::move(pin)));
}

}  // namespace kvist
