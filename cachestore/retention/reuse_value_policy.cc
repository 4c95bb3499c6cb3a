#include "cachestore/retention/reuse_value_policy.h"

#include <algorithm>
#include <cmath>

namespace kvist {
namespace {

// Blocks that left are remembered for so many times the number of those present.
constexpr std::size_t kGhostsPerBlock = 4;
constexpr std::size_t kGhostsMin = 256;

// Weights are kept as logarithms: 1/8 octave a step, from 2^-24 (a token in 16 MiB) up to 2^8.
constexpr float kWeightSteps = 8;
constexpr float kWeightOctaveMin = -24;

// An owner that touches parts of chains only, never a first block, would stop time: it moves after so many uses anyhow.
constexpr std::uint32_t kUsesPerTick = 4096;

}  // namespace

ReuseValuePolicy::ReuseValuePolicy(std::size_t expected_blocks, std::uint32_t double_cost_tokens)
    : forest_(expected_blocks),
      ghosts_(std::max(kGhostsMin, expected_blocks * kGhostsPerBlock)),
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
  if (ghosts_.capacity() < forest_.resident() * kGhostsPerBlock) ghosts_.GrowTo(ghosts_.capacity() * 2);
  const Slot slot = forest_.Add(key, place.parent);
  Extra& extra = forest_[slot].extra;
  if (const auto ghost = ghosts_.Take(MixedHash(key))) {
    extra.uses = static_cast<std::uint8_t>(std::min(*ghost + 1, GhostTable::kUsesMax)) & 3;
  }
  extra.followed_on = forest_[slot].children > 0;
  extra.sampled = ReuseModel::Follows(place.depth);
  extra.first = place.depth == 0;
  extra.weight = WeightOf(place);
  NoteUse(slot);
  Refresh(slot);
  if (const Slot parent = forest_.Parent(slot); parent != Forest::kNone) NoteChild(parent);
}

void ReuseValuePolicy::Touch(const BlockKey& key) {
  const Slot slot = forest_.Find(key);
  if (slot == Forest::kNone) return;
  Extra& extra = forest_[slot].extra;
  extra.uses = static_cast<std::uint8_t>(std::min(extra.uses + 1u, GhostTable::kUsesMax)) & 3;
  NoteUse(slot);
}

void ReuseValuePolicy::NoteUse(Slot slot) {
  auto& [key, parent, children, pins, resident, extra] = forest_[slot];
  if (extra.first || ++calls_since_now_ >= kUsesPerTick) {
    ++now_;
    calls_since_now_ = 0;
  }
  model_.Step(now_, forest_.resident());
  if (extra.sampled) model_.Used(MixedHash(key), ClassOf(extra), now_);
  extra.used = now_;
}

void ReuseValuePolicy::NoteChild(Slot parent) {
  Extra& extra = forest_[parent].extra;
  if (!extra.followed_on) {
    extra.followed_on = 1;
    if (extra.sampled) model_.Reclassify(MixedHash(forest_[parent].key), ClassOf(extra));
  }
  Refresh(parent);
}

void ReuseValuePolicy::Erase(const BlockKey& key) {
  const Slot slot = forest_.Find(key);
  if (slot == Forest::kNone) return;
  ghosts_.Add(MixedHash(key), forest_[slot].extra.uses);
  ++forest_[slot].pins;  // no candidate from here on
  Refresh(slot);
  if (const Slot parent = forest_.Remove(slot); parent != Forest::kNone) Refresh(parent);
}

void ReuseValuePolicy::Pin(const BlockKey& key) {
  const Slot slot = forest_.Find(key);
  if (slot == Forest::kNone) return;
  ++forest_[slot].pins;
  Refresh(slot);
}

void ReuseValuePolicy::Unpin(const BlockKey& key) {
  const Slot slot = forest_.Find(key);
  if (slot == Forest::kNone || forest_[slot].pins == 0) return;
  --forest_[slot].pins;
  Refresh(slot);
}

// Puts the block into candidates_ or takes it out, as its children and pins now say.
void ReuseValuePolicy::Refresh(Slot slot) {
  auto& node = forest_[slot];
  const bool is_in = node.extra.candidate != Forest::kNone;
  if (is_in == Forest::IsCandidate(node)) return;
  if (is_in) {
    const Slot last = candidates_.back();
    candidates_[node.extra.candidate] = last;
    forest_[last].extra.candidate = node.extra.candidate;
    candidates_.pop_back();
    node.extra.candidate = Forest::kNone;
  } else {
    node.extra.candidate = static_cast<std::uint32_t>(candidates_.size());
    candidates_.push_back(slot);
  }
}

float ReuseValuePolicy::Value(Slot slot) const {
  const Extra& extra = forest_[slot].extra;
  return model_.Value(ClassOf(extra), now_ - extra.used) * weights_[extra.weight];
}

std::optional<BlockKey> ReuseValuePolicy::Victim() {
  if (candidates_.empty()) return std::nullopt;
  const bool all = candidates_.size() <= kCandidatesPerVictim;
  const std::size_t draws = all ? candidates_.size() : kCandidatesPerVictim;
  Slot worst = Forest::kNone;
  float worst_value = 0;
  for (std::size_t i = 0; i < draws; ++i) {
    const Slot slot = candidates_[all ? i : Random() % candidates_.size()];
    const float value = Value(slot);
    const bool older = worst != Forest::kNone && now_ - forest_[slot].extra.used > now_ - forest_[worst].extra.used;
    if (worst == Forest::kNone || value < worst_value || (value == worst_value && older)) {
      worst = slot;
      worst_value = value;
    }
  }
  return forest_[worst].key;
}

bool ReuseValuePolicy::HasChildren(const BlockKey& key) const {
  const Slot slot = forest_.Find(key);
  return slot != Forest::kNone && forest_[slot].children > 0;
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
