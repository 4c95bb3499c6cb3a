#include "tools/analytics/replay.h"

#include <algorithm>
#include <bit>
#include <map>
#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace kvist::analytics {
namespace {

constexpr EvictionKind kKinds[] = {EvictionKind::kLru, EvictionKind::kS3Fifo, EvictionKind::kReuseValue,
                                   EvictionKind::kReuseCost};

// Blocks of 10 tokens, all full.
PrefixTrace TraceOf(std::vector<std::vector<std::uint32_t>> chains) {
  PrefixTrace trace;
  trace.block_tokens = 10;
  for (auto& chain : chains) {
    for (const std::uint32_t block : chain) trace.distinct_blocks = std::max(trace.distinct_blocks, block + 1);
    const auto tokens = static_cast<std::uint32_t>(chain.size() * 10);
    trace.requests.push_back({static_cast<std::int64_t>(trace.requests.size()), tokens, std::move(chain)});
  }
  return trace;
}

std::uint64_t HitTokens(const PrefixTrace& trace, EvictionKind kind, std::size_t capacity) {
  return Replay(trace, *MakeEvictionPolicy(kind), capacity).whole.hit_tokens;
}

TEST(Replay, CountsTokensOverTheWholeAndTheSecondHalf) {
  const PrefixTrace trace = TraceOf({{0, 1}, {0, 2}, {0, 1, 3}, {0, 2}});
  for (const EvictionKind kind : kKinds) {
    const ReplayResult result = Replay(trace, *MakeEvictionPolicy(kind), 100);
    EXPECT_EQ(result.whole.requests, 4u);
    EXPECT_EQ(result.whole.tokens, 90u);
    EXPECT_EQ(result.whole.hit_tokens, 50u);  // 0 + 10 + 20 + 20
    EXPECT_EQ(result.second_half.requests, 2u);
    EXPECT_EQ(result.second_half.tokens, 50u);
    EXPECT_EQ(result.second_half.hit_tokens, 40u);
    EXPECT_EQ(result.blocks_max, 4u);
    EXPECT_DOUBLE_EQ(result.second_half.hit_percent(), 80);
  }
}

TEST(Replay, PartialLastBlockHitsNoMoreThanThePrompt) {
  PrefixTrace trace = TraceOf({{0, 1}, {0, 1}});
  for (TraceRequest& request : trace.requests) request.tokens = 13;
  EXPECT_EQ(HitTokens(trace, EvictionKind::kLru, 10), 13u);
}

TEST(Replay, RequestLongerThanTheCacheKeepsItsHead) {
  const PrefixTrace trace = TraceOf({{0, 1, 2, 3, 4}, {0, 1, 2, 3, 4}});
  for (const EvictionKind kind : kKinds) EXPECT_EQ(HitTokens(trace, kind, 3), 30u);
}

TEST(Replay, LruEvictsTheOldestTailFirst) {
  // Three blocks of room. {3} pushes out 1 (the older chain's tail), {4} pushes out 0, which was all that was left of
  // it.
  const PrefixTrace trace = TraceOf({{0, 1}, {2}, {3}, {0, 1}});
  EXPECT_EQ(HitTokens(trace, EvictionKind::kLru, 3), 10u);
  EXPECT_EQ(HitTokens(TraceOf({{0, 1}, {2}, {3}, {4}, {0, 1}}), EvictionKind::kLru, 3), 0u);
}

TEST(ReplayOptimal, KeepsNothingOfWhatNeverReturns) {
  // Room for one chain of two. LRU loses it to every visitor.
  const PrefixTrace trace = TraceOf({{0, 1}, {2, 3}, {0, 1}, {4, 5}, {0, 1}});
  EXPECT_EQ(ReplayOptimal(trace, 2).whole.hit_tokens, 40u);
  EXPECT_EQ(HitTokens(trace, EvictionKind::kLru, 2), 0u);
}

TEST(ReplayPlainLru, LosesTheHeadFirst) {
  // Without the prefix rule the oldest block is the head: the chain's tail is left behind, unreachable.
  const PrefixTrace trace = TraceOf({{0, 1}, {2}, {0, 1}});
  EXPECT_EQ(ReplayPlainLru(trace, 2).whole.hit_tokens, 0u);
  EXPECT_EQ(HitTokens(trace, EvictionKind::kLru, 2), 10u);
}

TEST(PrefillCost, LaterTokensCostMore) {
  EXPECT_DOUBLE_EQ(PrefillCost(0), 0);
  EXPECT_DOUBLE_EQ(PrefillCost(32768), 32768 * 1.5);
}

// A random forest's chains, in random order.
PrefixTrace RandomTrace(std::mt19937& random, std::uint32_t blocks, std::size_t requests) {
  std::vector<std::vector<std::uint32_t>> chain_of;
  for (std::uint32_t block = 0; block < blocks; ++block) {
    const std::size_t parent = random() % (block + 1);
    chain_of.push_back(parent == block ? std::vector<std::uint32_t>{} : chain_of[parent]);
    chain_of.back().push_back(block);
  }
  std::vector<std::vector<std::uint32_t>> chains;
  for (std::size_t i = 0; i < requests; ++i) chains.push_back(chain_of[random() % blocks]);
  PrefixTrace trace = TraceOf(std::move(chains));
  trace.distinct_blocks = blocks;
  return trace;
}

// The most blocks that can be hit from request `at` on, by trying every set of blocks to keep that obeys the prefix
// rule.
class Exhaustive {
 public:
  Exhaustive(const PrefixTrace& trace, int capacity) : trace_(trace), capacity_(capacity), parent_(32, 0) {
    for (const TraceRequest& request : trace.requests) {
      for (std::size_t i = 1; i < request.blocks.size(); ++i) parent_[request.blocks[i]] = 1u << request.blocks[i - 1];
    }
  }

  int Best(std::size_t at, std::uint32_t resident) {
    if (at == trace_.requests.size()) return 0;
    const auto [it, is_new] = known_.try_emplace({at, resident}, 0);
    if (!is_new) return it->second;
    int hits = 0;
    std::uint32_t present = resident;
    bool reachable = true;
    for (const std::uint32_t block : trace_.requests[at].blocks) {
      reachable = reachable && (resident >> block & 1) != 0;
      hits += reachable ? 1 : 0;
      present |= 1u << block;
    }
    int best = 0;
    for (std::uint32_t kept = present;; kept = (kept - 1) & present) {
      if (std::popcount(kept) <= capacity_ && Rooted(kept)) best = std::max(best, Best(at + 1, kept));
      if (kept == 0) break;
    }
    return known_[{at, resident}] = hits + best;
  }

 private:
  bool Rooted(std::uint32_t blocks) const {
    for (std::uint32_t rest = blocks; rest != 0; rest &= rest - 1) {
      if ((parent_[std::countr_zero(rest)] & ~blocks) != 0) return false;
    }
    return true;
  }

  const PrefixTrace& trace_;
  int capacity_;
  std::vector<std::uint32_t> parent_;  // as a set
  std::map<std::pair<std::size_t, std::uint32_t>, int> known_;
};

TEST(ReplayOptimal, IsAsGoodAsTryingEverything) {
  for (unsigned seed = 0; seed < 60; ++seed) {
    std::mt19937 random(seed);
    const PrefixTrace trace = RandomTrace(random, 7, 8);
    for (const int capacity : {1, 2, 3, 4}) {
      EXPECT_EQ(ReplayOptimal(trace, static_cast<std::size_t>(capacity)).whole.hit_tokens,
                static_cast<std::uint64_t>(Exhaustive(trace, capacity).Best(0, 0)) * 10)
          << "seed " << seed << ", capacity " << capacity;
    }
  }
}

TEST(Replay, NoPolicyBeatsTheOptimumOrOverfillsTheCache) {
  for (unsigned seed = 0; seed < 10; ++seed) {
    std::mt19937 random(seed);
    const PrefixTrace trace = RandomTrace(random, 200, 500);
    for (const std::size_t capacity : {5u, 20u, 80u, 200u}) {
      const std::uint64_t optimum = ReplayOptimal(trace, capacity).whole.hit_tokens;
      for (const EvictionKind kind : kKinds) {
        const ReplayResult result = Replay(trace, *MakeEvictionPolicy(kind), capacity);
        EXPECT_LE(result.whole.hit_tokens, optimum) << EvictionKindName(kind) << ", seed " << seed;
        EXPECT_LE(result.blocks_max, capacity);
        if (capacity == 200) {  // all fits: nothing is ever evicted
          EXPECT_EQ(result.whole.hit_tokens, optimum);
        }
      }
    }
  }
}

}  // namespace
}  // namespace kvist::analytics
