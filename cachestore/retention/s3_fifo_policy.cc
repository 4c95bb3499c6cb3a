#include "cachestore/retention/s3_fifo_policy.h"

#include <algorithm>

namespace kvist {
namespace {

// From the paper: the small queue's share of all, the most uses that are counted, and those that lead to the main queue.
constexpr std::size_t kSmallShare = 10;
constexpr unsigned kUsesMax = 3;
constexpr unsigned kUsesForMain = 2;
constexpr std::size_t kGhostsMin = 256;

}  // namespace

S3FifoPolicy::S3FifoPolicy(std::size_t expected_blocks)
    : forest_(expected_blocks), ghosts_(std::max(kGhostsMin, expected_blocks)) {}

void S3FifoPolicy::Insert(const BlockKey& key, const BlockPlace& place) {
  if (Contains(key)) return;
  if (ghosts_.capacity() < forest_.resident()) ghosts_.GrowTo(ghosts_.capacity() * 2);
  const Slot slot = forest_.Add(key, place.parent);
  forest_[slot].extra.queue = ghosts_.Take(MixedHash(key)) ? kMain : kSmall;
  ++queues_[forest_[slot].extra.queue].blocks;
  PushYoung(slot);
}

void S3FifoPolicy::Touch(const BlockKey& key) {
  const Slot slot = forest_.Find(key);
  if (slot == Forest::kNone) return;
  Extra& extra = forest_[slot].extra;
  extra.uses = static_cast<std::uint8_t>(std::min(extra.uses + 1u, kUsesMax)) & 3;
}

void S3FifoPolicy::Erase(const BlockKey& key) {
  const Slot slot = forest_.Find(key);
  if (slot == Forest::kNone) return;
  const Extra extra = forest_[slot].extra;
  if (extra.queue == kSmall) ghosts_.Add(MixedHash(key), extra.uses);
  if (extra.linked) Unlink(slot);
  --queues_[extra.queue].blocks;
  if (const Slot parent = forest_.Remove(slot); parent != Forest::kNone) StepBackIn(parent);
}

void S3FifoPolicy::Pin(const BlockKey& key) {
  if (const Slot slot = forest_.Find(key); slot != Forest::kNone) ++forest_[slot].pins;
}

void S3FifoPolicy::Unpin(const BlockKey& key) {
  const Slot slot = forest_.Find(key);
  if (slot == Forest::kNone || forest_[slot].pins == 0) return;
  --forest_[slot].pins;
  StepBackIn(slot);
}

std::optional<BlockKey> S3FifoPolicy::Victim() {
  // Ends: each round takes a block out of a queue, moves it from small to main, or uses up one of its uses.
  while (true) {
    Queue& small = queues_[kSmall];
    Queue& main = queues_[kMain];
    if (small.oldest == Forest::kNone && main.oldest == Forest::kNone) return std::nullopt;
    const bool small_is_full = small.blocks * kSmallShare > forest_.resident();
    const bool from_small = main.oldest == Forest::kNone || (small_is_full && small.oldest != Forest::kNone);
    const Slot slot = from_small ? small.oldest : main.oldest;
    Extra& extra = forest_[slot].extra;
    if (!Forest::IsCandidate(forest_[slot])) {
      Unlink(slot);
    } else if (from_small && extra.uses >= kUsesForMain) {
      Unlink(slot);
      extra.uses = 0;
      --small.blocks;
      extra.queue = kMain;
      ++main.blocks;
      PushYoung(slot);
    } else if (!from_small && extra.uses > 0) {
      --extra.uses;
      Unlink(slot);
      PushYoung(slot);
    } else {
      return forest_[slot].key;
    }
  }
}

void S3FifoPolicy::StepBackIn(Slot slot) {
  if (!forest_[slot].extra.linked && Forest::IsCandidate(forest_[slot])) PushOld(slot);
}

void S3FifoPolicy::PushYoung(Slot slot) {
  Extra& extra = forest_[slot].extra;
  Queue& queue = queues_[extra.queue];
  extra.linked = 1;
  extra.younger = Forest::kNone;
  extra.older = queue.youngest;
  (queue.youngest == Forest::kNone ? queue.oldest : forest_[queue.youngest].extra.younger) = slot;
  queue.youngest = slot;
}

void S3FifoPolicy::PushOld(Slot slot) {
  Extra& extra = forest_[slot].extra;
  Queue& queue = queues_[extra.queue];
  extra.linked = 1;
  extra.older = Forest::kNone;
  extra.younger = queue.oldest;
  (queue.oldest == Forest::kNone ? queue.youngest : forest_[queue.oldest].extra.older) = slot;
  queue.oldest = slot;
}

void S3FifoPolicy::Unlink(Slot slot) {
  Extra& extra = forest_[slot].extra;
  Queue& queue = queues_[extra.queue];
  (extra.older == Forest::kNone ? queue.oldest : forest_[extra.older].extra.younger) = extra.younger;
  (extra.younger == Forest::kNone ? queue.youngest : forest_[extra.younger].extra.older) = extra.older;
  extra.linked = 0;
}

bool S3FifoPolicy::HasChildren(const BlockKey& key) const {
  const Slot slot = forest_.Find(key);
  return slot != Forest::kNone && forest_[slot].children > 0;
}

std::size_t S3FifoPolicy::MemoryBytes() const {
  return forest_.MemoryBytes() + ghosts_.MemoryBytes() + sizeof(*this);
}

}  // namespace kvist
