// Replays a trace against a cache of so many blocks, with the eviction policies the tiers use, or with the yardsticks
// that only a simulator can have.
//
// A request's hit is its longest prefix of resident blocks, at arrival: min(blocks * block_tokens, prompt) tokens. What
// it hit is touched, the rest inserted, head first; both stay pinned until the request is done, as a reader's lease
// does in the store, so a request never evicts its own prefix. If it is longer than the cache, its head is kept. Output
// tokens are not inserted (the traces have no ids for them).
#pragma once

#include <cstddef>
#include <cstdint>

#include "cachestore/retention/eviction_policy.h"
#include "tools/analytics/prefix_trace.h"

namespace kvist::analytics {

struct Tally {
  std::uint64_t requests = 0;
  std::uint64_t tokens = 0;
  std::uint64_t hit_tokens = 0;
  double cost = 0;  // of prefilling all of it, in tokens' worth: see PrefillCost
  double saved_cost = 0;

  double hit_percent() const {
    return tokens == 0 ? 0 : 100.0 * static_cast<double>(hit_tokens) / static_cast<double>(tokens);
  }
  double saved_percent() const { return cost == 0 ? 0 : 100 * saved_cost / cost; }
};

struct ReplayResult {
  Tally whole;
  Tally second_half;  // of the requests: the cache is warm
  std::size_t blocks_max = 0;
  std::size_t policy_bytes = 0;  // of the policy's own books, at the end
};

// Tokens' worth of work for a prompt: a token costs twice the first one's at kDoubleCostTokens (ReuseValuePolicy).
double PrefillCost(std::uint64_t tokens);

enum class TouchOrder {
  kTailFirst,  // the head ends up the youngest, so it leaves last
  kHeadFirst,
};

// `policy`: empty.
ReplayResult Replay(const PrefixTrace& trace, EvictionPolicy& policy, std::size_t capacity_blocks,
                    TouchOrder order = TouchOrder::kTailFirst);

// The offline optimum: Belady's rule on blocks (the one whose next use is farthest off leaves, deeper ones first) with
// knowledge of the whole trace, and free to keep nothing of a request. The prefix rule costs it nothing: a chain's
// later blocks are never used before its earlier ones.
ReplayResult ReplayOptimal(const PrefixTrace& trace, std::size_t capacity_blocks);

// LRU on blocks without the prefix rule, all of a request touched head first: what published figures often show.
ReplayResult ReplayPlainLru(const PrefixTrace& trace, std::size_t capacity_blocks);

}  // namespace kvist::analytics
