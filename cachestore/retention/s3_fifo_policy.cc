#include "cachestore/retention/s3_fifo_policy.h"

#include <algorithm>

namespace kvist {
namespace {

// From the paper: the small queue's share of all, the most uses that are counted, and those that lead to the main
// queue.
constexpr std::size_t kSmallShare = 10;
constexpr unsigned kUsesMax = 3;
constexpr unsigned kUsesForMain = 2;
constexpr std::size_t kGhostsMin = 256;

}  // namespace

S3FifoPolicy::S3FifoPolicy(std::size_t expected_blocks)
    : EvictionPolicy(expected_blocks), ghosts_(std::max(kGhostsMin, expected_blocks)) {}

void S3FifoPolicy::Insert(const BlockKey& key, const BlockPlace& place) {
  if (Contains(key)) return;
  if (ghosts_.capacity() < forest_.resident()) ghosts_.GrowTo(ghosts_.capacity() * 2);
  const Slot slot = forest_.Add(key, place.parent, place.depth);
  Bits bits;
  bits.queue = ghosts_.Take(MixedHash(key)) ? kMain : kSmall;
  SetBits(slot, bits);
  ++queues_[bits.queue].blocks;
  PushYoung(slot);
}

void S3FifoPolicy::Touch(const BlockKey& key) {
  const Slot slot = forest_.Find(key);
  if (slot == BlockForest::kNone) return;
  Bits bits = BitsOf(slot);
  bits.uses = static_cast<std::uint16_t>(std::min(bits.uses + 1u, kUsesMax)) & 3;
  SetBits(slot, bits);
}

void S3FifoPolicy::Erase(const BlockKey& key) {
  const Slot slot = forest_.Find(key);
  if (slot == BlockForest::kNone) return;
  const Bits bits = BitsOf(slot);
  if (bits.queue == kSmall) ghosts_.Add(MixedHash(key), bits.uses);
  if (bits.linked) Unlink(slot);
  --queues_[bits.queue].blocks;
  if (const Slot parent = forest_.Remove(slot); parent != BlockForest::kNone) StepBackIn(parent);
}

void S3FifoPolicy::Pin(const BlockKey& key) {
  if (const Slot slot = forest_.Find(key); slot != BlockForest::kNone) forest_.Pin(slot);
}

void S3FifoPolicy::Unpin(const BlockKey& key) {
  const Slot slot = forest_.Find(key);
  if (slot != BlockForest::kNone && forest_.Unpin(slot)) StepBackIn(slot);
}

std::optional<BlockKey> S3FifoPolicy::Victim() {
  // Ends: each round takes a block out of a queue, moves it from small to main, or uses up one of its uses.
  while (true) {
    Queue& small = queues_[kSmall];
    Queue& main = queues_[kMain];
    if (small.oldest == BlockForest::kNone && main.oldest == BlockForest::kNone) return std::nullopt;
    const bool small_is_full = small.blocks * kSmallShare > forest_.resident();
    const bool from_small = main.oldest == BlockForest::kNone || (small_is_full && small.oldest != BlockForest::kNone);
    const Slot slot = from_small ? small.oldest : main.oldest;
    Bits bits = BitsOf(slot);
    if (!BlockForest::IsCandidate(forest_[slot])) {
      Unlink(slot);
    } else if (from_small && bits.uses >= kUsesForMain) {
      Unlink(slot);
      --small.blocks;
      ++main.blocks;
      bits.uses = 0;
      bits.queue = kMain;
      SetBits(slot, bits);
      PushYoung(slot);
    } else if (!from_small && bits.uses > 0) {
      Unlink(slot);
      bits.uses = (bits.uses - 1) & 3;
      SetBits(slot, bits);
      PushYoung(slot);
    } else {
      return forest_[slot].key;
    }
  }
}

void S3FifoPolicy::StepBackIn(Slot slot) {
  if (!BitsOf(slot).linked && BlockForest::IsCandidate(forest_[slot])) PushOld(slot);
}

void S3FifoPolicy::SetLinked(Slot slot, bool linked) {
  Bits bits = BitsOf(slot);
  bits.linked = linked ? 1 : 0;
  SetBits(slot, bits);
}

void S3FifoPolicy::PushYoung(Slot slot) {
  Queue& queue = queues_[BitsOf(slot).queue];
  SetLinked(slot, true);
  Younger(slot) = BlockForest::kNone;
  Older(slot) = queue.youngest;
  (queue.youngest == BlockForest::kNone ? queue.oldest : Younger(queue.youngest)) = slot;
  queue.youngest = slot;
}

void S3FifoPolicy::PushOld(Slot slot) {
  Queue& queue = queues_[BitsOf(slot).queue];
  SetLinked(slot, true);
  Older(slot) = BlockForest::kNone;
  Younger(slot) = queue.oldest;
  (queue.oldest == BlockForest::kNone ? queue.youngest : Older(queue.oldest)) = slot;
  queue.oldest = slot;
}

void S3FifoPolicy::Unlink(Slot slot) {
  Queue& queue = queues_[BitsOf(slot).queue];
  const Slot older = Older(slot);
  const Slot younger = Younger(slot);
  (older == BlockForest::kNone ? queue.oldest : Younger(older)) = younger;
  (younger == BlockForest::kNone ? queue.youngest : Older(younger)) = older;
  SetLinked(slot, false);
}

std::size_t S3FifoPolicy::MemoryBytes() const { return forest_.MemoryBytes() + ghosts_.MemoryBytes() + sizeof(*this); }

}  // namespace kvist
