#include "tools/analytics/replay.h"

#include <algorithm>
#include <cassert>
#include <limits>
#include <list>
#include <optional>
#include <set>
#include <tuple>
#include <vector>

#include "cachestore/retention/reuse_value_policy.h"

namespace kvist::analytics {
namespace {

// What a token's KV takes in the models the cost model is for (32 layers, 8 KV heads of 128, 16 bit). All blocks being
// equally large, it changes no result.
constexpr std::uint32_t kBytesPerToken = 128 * 1024;

constexpr std::uint32_t kNever = std::numeric_limits<std::uint32_t>::max();

// Spreads the dense numbers over the key space, as digests would be. Number + 1: BlockKey{} is the root's parent.
BlockKey KeyOf(std::uint32_t block) {
  const std::uint64_t x = (std::uint64_t{block} + 1) * 0x9E3779B97F4A7C15ull;
  return BlockKey{x, x ^ (x >> 29)};
}

class Counter {
 public:
  explicit Counter(const PrefixTrace& trace) : trace_(trace) {}

  void Count(std::size_t at, std::size_t matched_blocks) {
    const std::uint64_t tokens = trace_.requests[at].tokens;
    const std::uint64_t hit = std::min<std::uint64_t>(std::uint64_t{matched_blocks} * trace_.block_tokens, tokens);
    for (Tally* tally : {&result_.whole, &result_.second_half}) {
      if (tally == &result_.second_half && at < trace_.requests.size() / 2) continue;
      ++tally->requests;
      tally->tokens += tokens;
      tally->hit_tokens += hit;
      tally->cost += PrefillCost(tokens);
      tally->saved_cost += PrefillCost(hit);
    }
  }
  void NoteSize(std::size_t blocks) { result_.blocks_max = std::max(result_.blocks_max, blocks); }
  ReplayResult& result() { return result_; }

 private:
  const PrefixTrace& trace_;
  ReplayResult result_;
};

// Inserts what the request lacks from block `at` on, each block pinned. Returns the end of what is resident.
std::size_t InsertRest(const TraceRequest& request, std::size_t at, std::uint32_t block_tokens,
                       std::size_t capacity_blocks, EvictionPolicy& policy) {
  for (; at < request.blocks.size(); ++at) {
    if (policy.size() >= capacity_blocks) {
      const std::optional<BlockKey> victim = policy.Victim();
      if (!victim) return at;
      policy.Erase(*victim);
    }
    const BlockKey key = KeyOf(request.blocks[at]);
    const BlockKey parent = at == 0 ? BlockKey{} : KeyOf(request.blocks[at - 1]);
    policy.Insert(key, {parent, static_cast<std::uint32_t>(at), block_tokens, block_tokens * kBytesPerToken});
    policy.Pin(key);
  }
  return at;
}

}  // namespace

double PrefillCost(std::uint64_t tokens) {
  const auto n = static_cast<double>(tokens);
  return n * (1 + n / (2 * double{ReuseValuePolicy::kDoubleCostTokens}));
}

ReplayResult Replay(const PrefixTrace& trace, EvictionPolicy& policy, std::size_t capacity_blocks, TouchOrder order) {
  Counter counter(trace);
  for (std::size_t i = 0; i < trace.requests.size(); ++i) {
    const TraceRequest& request = trace.requests[i];
    std::size_t matched = 0;
    while (matched < request.blocks.size() && policy.Contains(KeyOf(request.blocks[matched]))) ++matched;
    counter.Count(i, matched);
    for (std::size_t k = 0; k < matched; ++k) {
      const std::size_t at = order == TouchOrder::kHeadFirst ? k : matched - 1 - k;
      policy.Touch(KeyOf(request.blocks[at]));
      policy.Pin(KeyOf(request.blocks[at]));
    }
    const std::size_t end = InsertRest(request, matched, trace.block_tokens, capacity_blocks, policy);
    for (std::size_t at = 0; at < end; ++at) policy.Unpin(KeyOf(request.blocks[at]));
    counter.NoteSize(policy.size());
  }
  counter.result().policy_bytes = policy.MemoryBytes();
  return counter.result();
}

ReplayResult ReplayOptimal(const PrefixTrace& trace, std::size_t capacity_blocks) {
  // next_use[k]: when the k-th use of a block (in order of the trace) is followed by its next.
  std::vector<std::vector<std::uint32_t>> next_use(trace.requests.size());
  std::vector<std::uint32_t> upcoming(trace.distinct_blocks, kNever);
  for (std::size_t i = trace.requests.size(); i-- > 0;) {
    for (const std::uint32_t block : trace.requests[i].blocks) {
      next_use[i].push_back(upcoming[block]);
      upcoming[block] = static_cast<std::uint32_t>(i);
    }
  }

  using Rank = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>;  // next use, depth, block: the greatest leaves
  std::set<Rank> resident;
  std::vector<std::optional<Rank>> rank_of(trace.distinct_blocks);
  Counter counter(trace);
  for (std::size_t i = 0; i < trace.requests.size(); ++i) {
    const auto& blocks = trace.requests[i].blocks;
    std::size_t matched = 0;
    while (matched < blocks.size() && rank_of[blocks[matched]]) ++matched;
    counter.Count(i, matched);
    for (std::size_t at = 0; at < blocks.size(); ++at) {
      std::optional<Rank>& rank = rank_of[blocks[at]];
      if (rank) resident.erase(*rank);
      rank = Rank{next_use[i][at], static_cast<std::uint32_t>(at), blocks[at]};
      resident.insert(*rank);
    }
    while (resident.size() > capacity_blocks) {
      rank_of[std::get<2>(*resident.rbegin())].reset();
      resident.erase(std::prev(resident.end()));
    }
    counter.NoteSize(resident.size());
  }
  return counter.result();
}

ReplayResult ReplayPlainLru(const PrefixTrace& trace, std::size_t capacity_blocks) {
  std::list<std::uint32_t> order;  // youngest first
  std::vector<std::list<std::uint32_t>::iterator> place(trace.distinct_blocks, order.end());
  Counter counter(trace);
  for (std::size_t i = 0; i < trace.requests.size(); ++i) {
    const auto& blocks = trace.requests[i].blocks;
    std::size_t matched = 0;
    while (matched < blocks.size() && place[blocks[matched]] != order.end()) ++matched;
    counter.Count(i, matched);
    for (const std::uint32_t block : blocks) {
      if (place[block] != order.end()) order.erase(place[block]);
      place[block] = order.insert(order.begin(), block);
      if (order.size() > capacity_blocks) {
        place[order.back()] = order.end();
        order.pop_back();
      }
    }
    counter.NoteSize(order.size());
  }
  return counter.result();
}

}  // namespace kvist::analytics
