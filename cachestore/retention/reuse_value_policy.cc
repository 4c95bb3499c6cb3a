#include "cachestore/retention/reuse_value_policy.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace kvist {
namespace {

// Blocks that left are remembered for: so many times the number of those present while that is cheap (half a MiB), then
// as many as are present. Only small caches gain from more.
constexpr std::size_t kGhostsPerBlock = 4;
constexpr std::size_t kManyGhosts = std::size_t{1} << 18;
constexpr std::size_t kGhostsMin = 256;

std::size_t GhostsFor(std::size_t blocks) { return std::max(blocks, std::min(blocks * kGhostsPerBlock, kManyGhosts)); }

// Weights are kept as logarithms: 1/8 octave a step, from 2^-24 (a token in 16 MiB) up to 2^8.
constexpr float kWeightSteps = 8;
constexpr float kWeightOctaveMin = -24;

// An owner that touches parts of chains only, never a first block, would stop time: it moves after so many uses anyhow.
constexpr std::uint32_t kUsesPerTick = 4096;

}  // namespace

ReuseValuePolicy::ReuseValuePolicy(std::size_t expected_blocks, std::uint32_t double_cost_tokens)
    : EvictionPolicy(expected_blocks),
      ghosts_(std::max(kGhostsMin, GhostsFor(expected_blocks))),
      double_cost_tokens_(double_cost_tokens) {
  for (std::size_t i = 0; i < weights_.size(); ++i) {
    weights_[i] = std::exp2(kWeightOctaveMin + static_cast<float>(i) / kWeightSteps);
  }
}

std::uint8_t ReuseValuePolicy::WeightOf(const BlockPlace& place) const {
  const float tokens = static_cast<float>(std::max(place.tokens, 1u));
  const float before = static_cast<float>(place.depth) * tokens;
  const float cost =
      double_cost_tokens_ == 0 ? tokens : tokens * (1 + before / static_cast<float>(double_cost_tokens_));
  const float octave = std::log2(cost / static_cast<float>(std::max(place.bytes, 1u)));
  return static_cast<std::uint8_t>(std::clamp(std::round((octave - kWeightOctaveMin) * kWeightSteps), 0.0f, 255.0f));
}

void ReuseValuePolicy::Insert(const BlockKey& key, const BlockPlace& place) {
  if (Contains(key)) return;
  if (ghosts_.capacity() < GhostsFor(forest_.resident())) ghosts_.GrowTo(ghosts_.capacity() * 2);
  const Slot slot = forest_.Add(key, place.parent, place.depth);
  Bits bits;
  if (const auto ghost = ghosts_.Take(MixedHash(key))) {
    bits.uses = static_cast<std::uint16_t>(std::min(*ghost + 1, GhostTable::kUsesMax)) & 3;
  }
  bits.followed_on = forest_[slot].children > 0;
  bits.weight = WeightOf(place);
  if (place.last_use > 0) {
    // What is older than the clock's lower half can tell is as old as that can.
    now_ = std::max(now_, place.last_use);
    const std::uint64_t age = now_ - place.last_use;
    const auto oldest = std::uint64_t{std::numeric_limits<ReuseModel::Time>::max()} / 2;
    forest_[slot].policy[1] = static_cast<ReuseModel::Time>(now_ - std::min(age, oldest));
    SetBits(slot, bits);
  } else {
    bits.sampled = place.depth < BlockForest::kDepthUnknown && ReuseModel::Follows(place.depth);
    NoteUse(slot, bits);
  }
  Refresh(slot);
  if (const Slot parent = forest_.Parent(slot); parent != BlockForest::kNone) NoteChild(parent);
}

void ReuseValuePolicy::Touch(const BlockKey& key) {
  const Slot slot = forest_.Find(key);
  if (slot == BlockForest::kNone) return;
  Bits bits = BitsOf(slot);
  bits.uses = static_cast<std::uint16_t>(std::min(bits.uses + 1u, GhostTable::kUsesMax)) & 3;
  NoteUse(slot, bits);
}

void ReuseValuePolicy::NoteUse(Slot slot, Bits bits) {
  if (forest_[slot].depth == 0 || ++calls_since_now_ >= kUsesPerTick) {
    ++now_;
    calls_since_now_ = 0;
  }
  const auto now = static_cast<ReuseModel::Time>(now_);
  model_.Step(now, forest_.resident());
  if (bits.sampled) model_.Used(MixedHash(forest_[slot].key), ClassOf(bits), now);
  forest_[slot].policy[1] = now;
  SetBits(slot, bits);
}

void ReuseValuePolicy::NoteChild(Slot parent) {
  Bits bits = BitsOf(parent);
  if (!bits.followed_on) {
    bits.followed_on = 1;
    SetBits(parent, bits);
    if (bits.sampled) model_.Reclassify(MixedHash(forest_[parent].key), ClassOf(bits));
  }
  Refresh(parent);
}

void ReuseValuePolicy::Erase(const BlockKey& key) {
  const Slot slot = forest_.Find(key);
  if (slot == BlockForest::kNone) return;
  ghosts_.Add(MixedHash(key), BitsOf(slot).uses);
  TakeCandidate(slot);
  if (const Slot parent = forest_.Remove(slot); parent != BlockForest::kNone) Refresh(parent);
}

void ReuseValuePolicy::Pin(const BlockKey& key) {
  const Slot slot = forest_.Find(key);
  if (slot != BlockForest::kNone && forest_.Pin(slot)) Refresh(slot);
}

void ReuseValuePolicy::Unpin(const BlockKey& key) {
  const Slot slot = forest_.Find(key);
  if (slot != BlockForest::kNone && forest_.Unpin(slot)) Refresh(slot);
}

// Puts the block into candidates_ or takes it out, as its children and pins now say.
void ReuseValuePolicy::Refresh(Slot slot) {
  if (!BlockForest::IsCandidate(forest_[slot])) return TakeCandidate(slot);
  Bits bits = BitsOf(slot);
  if (bits.candidate) return;
  bits.candidate = 1;
  SetBits(slot, bits);
  Place(slot) = static_cast<Slot>(candidates_.size());
  candidates_.push_back(slot);
}

void ReuseValuePolicy::TakeCandidate(Slot slot) {
  Bits bits = BitsOf(slot);
  if (!bits.candidate) return;
  bits.candidate = 0;
  SetBits(slot, bits);
  const Slot last = candidates_.back();
  candidates_[Place(slot)] = last;
  Place(last) = Place(slot);
  candidates_.pop_back();
}

float ReuseValuePolicy::Value(Slot slot) const {
  const Bits bits = BitsOf(slot);
  return model_.Value(ClassOf(bits), Age(slot)) * weights_[bits.weight];
}

std::optional<BlockKey> ReuseValuePolicy::Victim() {
  if (candidates_.empty()) return std::nullopt;
  const bool all = candidates_.size() <= kCandidatesPerVictim;
  const std::size_t draws = all ? candidates_.size() : kCandidatesPerVictim;
  Slot worst = BlockForest::kNone;
  float worst_value = 0;
  for (std::size_t i = 0; i < draws; ++i) {
    const Slot slot = candidates_[all ? i : Random() % candidates_.size()];
    const float value = Value(slot);
    const bool older = worst != BlockForest::kNone && Age(slot) > Age(worst);
    if (worst == BlockForest::kNone || value < worst_value || (value == worst_value && older)) {
      worst = slot;
      worst_value = value;
    }
  }
  return forest_[worst].key;
}

std::size_t ReuseValuePolicy::MemoryBytes() const {
  return forest_.MemoryBytes() + candidates_.capacity() * sizeof(Slot) + ghosts_.MemoryBytes() + model_.MemoryBytes() +
         sizeof(*this);
}

// xorshift64: cheap, and the same on every run.
std::uint64_t ReuseValuePolicy::Random() {
  random_ ^= random_ << 13;
  random_ ^= random_ >> 7;
  random_ ^= random_ << 17;
  return random_;
}

}  // namespace kvist
