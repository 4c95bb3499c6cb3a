// ReuseValuePolicy: evicts the block whose expected use per byte and time is least. Expected use comes from ReuseModel,
// weighed by what a hit saves: its tokens, or their recomputation, which costs more the more tokens are before them.
//
// A block in a long-lived conversation, or one that came back soon after it had been evicted, outlasts one seen once,
// and the end of a prompt that nothing followed goes early. Candidates (leaves that no one has pinned) are in no order:
// their values change with age. A victim is the worst of kCandidatesPerVictim drawn at random, from a fixed seed.
// Not thread-safe.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <optional>
#include <vector>

#include "cachestore/retention/eviction_policy.h"
#include "cachestore/retention/ghost_table.h"
#include "cachestore/retention/reuse_model.h"

namespace kvist {

class ReuseValuePolicy final : public EvictionPolicy {
 public:
  // `double_cost_tokens`: where in a prompt a token costs twice what its first one does; 0: cost doesn't depend on it.
  explicit ReuseValuePolicy(std::size_t expected_blocks, std::uint32_t double_cost_tokens);

  void Insert(const BlockKey& key, const BlockPlace& place) override;
  void Touch(const BlockKey& key) override;
  void Erase(const BlockKey& key) override;
  void Pin(const BlockKey& key) override;
  void Unpin(const BlockKey& key) override;
  std::optional<BlockKey> Victim() override;
  std::uint64_t NewestUse() const override { return now_; }
  std::uint64_t LastUse(Slot slot) const override { return now_ - Age(slot); }
  std::size_t MemoryBytes() const override;

  // Enough that the worst drawn is among the worst tenth of all 97 times in 100; little enough to be cheap under a
  // lock.
  static constexpr std::size_t kCandidatesPerVictim = 32;
  // Attention's share of a token's cost equals that of the weights at about this context in models of 7 to 9 billion
  // parameters (32 layers of width 4096: 4 * 4096 * 32 operations per token of context, against 2 * 8e9).
  static constexpr std::uint32_t kDoubleCostTokens = 32768;

 private:
  // A node's two words: its place in candidates_, and the lower half of the time of its last use.
  Slot& Place(Slot slot) { return forest_[slot].policy[0]; }
  ReuseModel::Time Age(Slot slot) const { return static_cast<ReuseModel::Time>(now_) - forest_[slot].policy[1]; }
  // And its bits.
  struct Bits {
    std::uint16_t weight : 8 = 0;  // of what a hit saves per byte: see WeightOf
    std::uint16_t uses : 2 = 0;
    std::uint16_t followed_on : 1 = 0;  // it has had a child
    std::uint16_t sampled : 1 = 0;      // ReuseModel::Follows its depth
    std::uint16_t candidate : 1 = 0;    // it is in candidates_
    std::uint16_t : 3;
  };
  Bits BitsOf(Slot slot) const { return std::bit_cast<Bits>(forest_[slot].policy_bits); }
  void SetBits(Slot slot, Bits bits) { forest_[slot].policy_bits = std::bit_cast<std::uint16_t>(bits); }

  static ReuseModel::Class ClassOf(Bits bits) {
    return static_cast<ReuseModel::Class>(bits.uses * 2 + bits.followed_on);
  }
  std::uint8_t WeightOf(const BlockPlace& place) const;
  float Value(Slot slot) const;
  void NoteUse(Slot slot, Bits bits);
  void NoteChild(Slot parent);
  void Refresh(Slot slot);
  void TakeCandidate(Slot slot);
  std::uint64_t Random();

  std::vector<Slot> candidates_;
  GhostTable ghosts_;
  ReuseModel model_;
  std::array<float, 256> weights_;  // by Extra::weight
  std::uint32_t double_cost_tokens_;
  std::uint64_t now_ = 0;              // chains used so far
  std::uint32_t calls_since_now_ = 0;  // uses of blocks, since now_ moved
  std::uint64_t random_ = 0x9E3779B97F4A7C15ull;
};

}  // namespace kvist
