#include "cachestore/movement/acquisition.h"

#include <algorithm>
#include <utility>

#include "cachestore/io/clock.h"

namespace kvist {
namespace {

// Deadlines are intervals: the wall clock has no say in them.
absl::Duration IntervalNow() { return SystemClock().Monotonic(); }

}  // namespace

void Acquisition::Start(const Parts& parts, Request request, std::span<const TokenId> tokens,
                        std::shared_ptr<Call> call, std::shared_ptr<void> alive) {
  auto self = std::make_shared<Acquisition>(parts, std::move(request), std::move(call), std::move(alive));
  const Request& of = self->request_;
  self->blocks_ = parts.dram->Lease(of.ns, of.keys, tokens, of.now);
  self->sources_.assign(self->blocks_.size(), Tier::kDram);
  const std::size_t reachable = self->Reachable();
  const bool all_here = std::find(self->blocks_.begin(), self->blocks_.begin() + static_cast<std::ptrdiff_t>(reachable),
                                  nullptr) == self->blocks_.begin() + static_cast<std::ptrdiff_t>(reachable);
  self->reachable_ = reachable;
  if (parts.shared != nullptr && !(all_here && reachable == self->blocks_.size())) {
    self->shared_due_ = IntervalNow() + parts.shared->options().chain_timeout;
  }
  {
    absl::MutexLock lock(&self->mutex_);
    self->limit_ = reachable;
    if (all_here) self->next_ = reachable;
  }
  if (!all_here || (parts.shared != nullptr && reachable < self->blocks_.size()))
    self->tokens_.assign(tokens.begin(), tokens.end());
  self->Probe();
  self->Pump();
}

Acquisition::Below Acquisition::OnNvme(std::size_t index) const {
  const std::optional<NvmeBlock> below = parts_.nvme->Find(request_.keys[index]);
  if (!below) return Below::kAbsent;
  const bool good = below->ns == request_.ns && below->record_bytes == request_.shape.record_bytes() &&
                    !ExpiredBelow(*below, request_.now);
  return good ? Below::kHere : Below::kUseless;
}

std::size_t Acquisition::Reachable() const {
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    if (blocks_[i] == nullptr && OnNvme(i) != Below::kHere) return i;
  }
  return blocks_.size();
}

void Acquisition::Probe() {
  if (parts_.shared == nullptr || reachable_ >= blocks_.size() || call_->over()) return;
  // What is not here; what is here beyond it counts again once the gap is closed.
  std::vector<std::size_t> missing;
  std::size_t end = reachable_;
  for (; end < blocks_.size(); ++end) {
    if (blocks_[end] != nullptr) continue;
    const Below below = OnNvme(end);
    if (below == Below::kUseless) break;
    if (below == Below::kAbsent) missing.push_back(end);
  }
  if (missing.empty()) return;
  std::vector<BlockKey> keys;
  keys.reserve(missing.size());
  for (const std::size_t index : missing) keys.push_back(request_.keys[index]);
  {
    absl::MutexLock lock(&mutex_);
    ++in_flight_;
  }
  parts_.shared->CountPresent(
      request_.ns, std::move(keys),
      [self = shared_from_this(), missing = std::move(missing), end](absl::StatusOr<std::size_t> count) {
        const std::size_t present = count.value_or(0);
        self->OnProbed(present < missing.size() ? missing[present] : end);
      });
}

void Acquisition::OnProbed(std::size_t limit) {
  {
    absl::MutexLock lock(&mutex_);
    --in_flight_;
    // Unless something failed before: then the chain ends there.
    if (limit_ == reachable_) limit_ = limit;
  }
  Pump();
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
    parts_.promotion->Fetch(
        {.ns = request_.ns,
         .key = request_.keys[index],
         .shape = request_.shape,
         .expires = request_.expires,
         .shared_time = shared_due_ - IntervalNow()},
        [self, index](absl::StatusOr<Promotion::Fetched> fetched) { self->OnFetched(index, std::move(fetched)); });
  }
  Finish();
}

bool Acquisition::Fits(std::size_t index, const DramBlock& block) const {
  const std::size_t count = request_.shape.block_tokens;
  return block.parent() == (index == 0 ? request_.ns : request_.keys[index - 1]) &&
         RecordTokensEqual(block.record(), std::span(tokens_).subspan(index * count, count));
}

void Acquisition::OnFetched(std::size_t index, absl::StatusOr<Promotion::Fetched> fetched) {
  bool good = fetched.ok();
  if (good && !Fits(index, *fetched->block)) {
    parts_.dram->CountCorrupt();
    good = false;
  }
  if (good) parts_.dram->Lease(fetched->block);
  {
    absl::MutexLock lock(&mutex_);
    --in_flight_;
    if (good) {
      blocks_[index] = std::move(fetched->block);
      sources_[index] = fetched->from;
    } else if (absl::IsResourceExhausted(fetched.status()) && YieldTail(index)) {
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

void Acquisition::CountHits(std::size_t count) {
  const auto from = [&](Tier tier) {
    return static_cast<std::uint64_t>(
        std::count(sources_.begin(), sources_.begin() + static_cast<std::ptrdiff_t>(count), tier));
  };
  parts_.hits->dram += from(Tier::kDram);
  parts_.hits->nvme += from(Tier::kNvme);
  parts_.hits->shared += from(Tier::kShared);
  parts_.hits->miss += request_.keys.size() - count;
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
    if (parts_.shared_write_back != nullptr) parts_.shared_write_back->Offer(request_.ns, keys, request_.expires);
  }
  std::vector<Lease::Block> leased;
  leased.reserve(count);
  DramBlockRef last_shared;
  for (std::size_t i = 0; i < count; ++i) {
    leased.push_back({keys[i], sources_[i], blocks_[i]->payload()});
    if (sources_[i] == Tier::kShared) last_shared = blocks_[i];
  }
  CountHits(count);
  // With those above it.
  if (last_shared != nullptr) parts_.write_back->Enqueue(last_shared, nullptr);

  std::vector<DramBlockRef> held(std::make_move_iterator(blocks_.begin()),
                                 std::make_move_iterator(blocks_.begin() + static_cast<std::ptrdiff_t>(count)));
  auto pin = count > 0 ? std::make_shared<DramLease>(parts_.dram, std::move(held)) : nullptr;
  parts_.dram->Release(blocks_);  // beyond the lease; those in it are null now
  blocks_.clear();
  call_->Complete(Lease(std::move(leased), std::move(pin)));
}

}  // namespace kvist
