#include "cachestore/retention/reuse_value_policy.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace kvist {
namespace {

using ::testing::Optional;

BlockKey Key(std::uint64_t n) { return {n, 7}; }

TEST(ReuseValuePolicy, UnlearntItEvictsTheLeastRecentlyUsed) {
  ReuseValuePolicy policy(0, 0);
  for (std::uint64_t n = 1; n <= 20; ++n) policy.Insert(Key(n), {});
  policy.Touch(Key(1));
  EXPECT_THAT(policy.Victim(), Optional(Key(2)));
}

TEST(ReuseValuePolicy, LargerBlockOfEqualUseGoesFirst) {
  ReuseValuePolicy policy(0, 0);
  policy.Insert(Key(1), {.parent = {}, .tokens = 64, .bytes = 1 << 20});
  policy.Insert(Key(2), {.parent = {}, .tokens = 64, .bytes = 8 << 20});
  EXPECT_THAT(policy.Victim(), Optional(Key(2)));
}

TEST(ReuseValuePolicy, WeighsRecomputationOnlyIfAskedTo) {
  for (const std::uint32_t double_cost_tokens : {0u, ReuseValuePolicy::kDoubleCostTokens}) {
    ReuseValuePolicy policy(0, double_cost_tokens);
    // The tail of a long prompt, then that of a short one.
    policy.Insert(Key(1), {.parent = Key(100), .depth = 2000, .tokens = 64, .bytes = 1 << 20});
    policy.Insert(Key(2), {.parent = {}, .depth = 0, .tokens = 64, .bytes = 1 << 20});
    EXPECT_THAT(policy.Victim(), Optional(Key(double_cost_tokens == 0 ? 1 : 2)));
  }
}

// Two kinds of chains in turn: conversations that come back, and one-off prompts, more of them than there is room for
// between two turns. LRU would lose every conversation; this policy learns to keep them.
TEST(ReuseValuePolicy, KeepsWhatComesBackThroughAScan) {
  constexpr std::uint64_t kConversations = 40;
  constexpr std::uint64_t kOneOffsPerTurn = 10;
  constexpr std::size_t kCapacity = 100;  // of 40 + 400 blocks between two turns of the same conversation
  ReuseValuePolicy policy(kCapacity, 0);
  const auto use = [&](std::uint64_t n) {
    const bool hit = policy.Contains(Key(n));
    if (hit) {
      policy.Touch(Key(n));
    } else {
      if (policy.size() >= kCapacity) policy.Erase(*policy.Victim());
      policy.Insert(Key(n), {});
    }
    return hit;
  };
  std::uint64_t one_off = 1000;
  int hits = 0;
  for (std::uint64_t turn = 0; turn < 4000; ++turn) {
    const bool hit = use(1 + turn % kConversations);
    if (turn >= 2000 && hit) ++hits;
    for (std::uint64_t i = 0; i < kOneOffsPerTurn; ++i) use(one_off++);
  }
  EXPECT_GT(hits, 1800);  // of 2,000
}

TEST(ReuseValuePolicy, EndThatNothingFollowedGoesBeforeAMiddleOfTheSameAge) {
  ReuseValuePolicy policy(0, 0);
  // Prompts of one full block and a last one; the first block comes back with another end each time.
  std::uint64_t end = 1000;
  for (int round = 0; round < 2000; ++round) {
    for (std::uint64_t n = 1; n <= 5; ++n) {
      policy.Contains(Key(n)) ? policy.Touch(Key(n)) : policy.Insert(Key(n), {});
      policy.Insert(Key(end), {.parent = Key(n), .depth = 1});
      ++end;
    }
    while (policy.size() > 200) policy.Erase(*policy.Victim());
  }
  // Same chain, same age: the middle's end has left, so it is a leaf as well.
  policy.Insert(Key(1), {});
  policy.Touch(Key(1));
  policy.Insert(Key(5000000), {.parent = Key(1), .depth = 1});
  policy.Insert(Key(5000001), {.parent = Key(5000000), .depth = 2});
  policy.Erase(Key(5000001));
  policy.Insert(Key(5000002), {.parent = Key(1), .depth = 1});
  int middle_first = 0;
  while (policy.Contains(Key(5000000)) && policy.Contains(Key(5000002))) {
    const BlockKey victim = *policy.Victim();
    middle_first += victim == Key(5000000) ? 1 : 0;
    policy.Erase(victim);
  }
  EXPECT_EQ(middle_first, 0);
}

}  // namespace
}  // namespace kvist
