// kvist-simulate: replays prefix-reuse traces with the store's eviction policies and prints a table of token hit rates,
// in Markdown. docs/eviction.md says how its tables were made.
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "cachestore/lock_order_checks.h"
#include "fmt/format.h"
#include "tools/analytics/replay.h"

namespace {

using kvist::analytics::PrefixTrace;
using kvist::analytics::ReplayResult;

struct Options {
  std::string mooncake;
  std::string agents;
  double stagger_s = 0;
  std::uint32_t block_tokens = 0;
  bool full_blocks = false;
  bool compute = false;
  bool head_first = false;
  std::vector<double> percents = {1, 2, 5, 10, 25, 50};
  std::vector<std::size_t> blocks;
  std::vector<std::string> policies = {"lru", "s3-fifo", "reuse-value", "reuse-cost", "optimal"};
};

absl::StatusOr<PrefixTrace> Read(const Options& options) {
  absl::StatusOr<PrefixTrace> trace =
      options.mooncake.empty()
          ? kvist::analytics::ReadAgentSessions(options.agents, std::llround(options.stagger_s * 1000))
          : kvist::analytics::ReadMooncakeTrace(std::filesystem::path(options.mooncake));
  if (!trace.ok()) return trace;
  if (options.block_tokens != 0 && options.block_tokens != trace->block_tokens) {
    if (options.block_tokens % trace->block_tokens != 0) {
      return absl::InvalidArgumentError(
          fmt::format("--block-tokens {}: the trace has blocks of {} tokens, so only multiples of that can be had",
                      options.block_tokens, trace->block_tokens));
    }
    trace = WithLargerBlocks(*trace, options.block_tokens / trace->block_tokens);
  }
  if (options.full_blocks) trace = WithoutPartialBlocks(*trace);
  return trace;
}

ReplayResult Run(const PrefixTrace& trace, const std::string& policy, std::size_t capacity, const Options& options) {
  if (policy == "optimal") return kvist::analytics::ReplayOptimal(trace, capacity);
  if (policy == "plain-lru") return kvist::analytics::ReplayPlainLru(trace, capacity);
  const auto order =
      options.head_first ? kvist::analytics::TouchOrder::kHeadFirst : kvist::analytics::TouchOrder::kTailFirst;
  return Replay(trace, *kvist::MakeEvictionPolicy(*kvist::EvictionKindFromName(policy), capacity), capacity, order);
}

void PrintTable(const PrefixTrace& trace, const Options& options) {
  std::vector<std::size_t> capacities = options.blocks;
  std::string header = "| policy |";
  std::string rule = "|---|";
  for (const std::size_t blocks : capacities) header += fmt::format(" {} blocks |", blocks);
  if (capacities.empty()) {
    for (const double percent : options.percents) {
      capacities.push_back(static_cast<std::size_t>(std::llround(percent / 100 * trace.distinct_blocks)));
      header += fmt::format(" {}% ({}) |", percent, capacities.back());
    }
  }
  for (std::size_t i = 0; i < capacities.size(); ++i) rule += "--:|";
  fmt::print("{} requests, {} blocks of {} tokens\n\n{}\n{}\n", trace.requests.size(), trace.distinct_blocks,
             trace.block_tokens, header, rule);
  std::string memory;
  for (const std::string& policy : options.policies) {
    fmt::print("| {} |", policy);
    for (const std::size_t capacity : capacities) {
      const ReplayResult result = Run(trace, policy, capacity, options);
      fmt::print(" {:.2f} / {:.2f} |", options.compute ? result.whole.saved_percent() : result.whole.hit_percent(),
                 options.compute ? result.second_half.saved_percent() : result.second_half.hit_percent());
      std::fflush(stdout);
      if (result.policy_bytes > 0 && result.blocks_max > 0) {
        memory +=
            fmt::format("{} at {} blocks: {:.1f} bytes of the policy's own per block\n", policy, result.blocks_max,
                        static_cast<double>(result.policy_bytes) / static_cast<double>(result.blocks_max));
      }
    }
    fmt::print("\n");
  }
  fmt::print("\n{}", memory);
}

}  // namespace

int main(int argc, char** argv) {
  kvist::SkipLockOrderChecks();
  Options options;
  CLI::App app(
      "Replays prefix-reuse traces with the store's eviction policies: token hit rates in percent, over the "
      "whole trace / its second half.");
  auto* mooncake = app.add_option("--mooncake", options.mooncake, "A Mooncake trace (JSON lines)");
  auto* agents = app.add_option("--agents", options.agents, "A folder of agent sessions (trace_*.json)");
  mooncake->excludes(agents);
  app.add_option("--stagger-s", options.stagger_s, "Seconds between the starts of agent sessions");
  app.add_option("--block-tokens", options.block_tokens, "Join the trace's blocks into larger ones");
  app.add_flag("--full-blocks", options.full_blocks, "Leave partial blocks out, as the store does");
  app.add_flag("--compute", options.compute, "Show the share of prefill compute saved instead of tokens hit");
  app.add_flag("--head-first", options.head_first, "Touch chains head first instead of tail first");
  auto* percents = app.add_option("--percent", options.percents, "Capacities, in percent of the working set");
  app.add_option("--blocks", options.blocks, "Capacities, in blocks")->excludes(percents);
  app.add_option("--policy", options.policies, "lru, s3-fifo, reuse-value, reuse-cost, optimal, plain-lru")
      ->check(CLI::IsMember({"lru", "s3-fifo", "reuse-value", "reuse-cost", "optimal", "plain-lru"}));
  CLI11_PARSE(app, argc, argv);
  if (options.mooncake.empty() && options.agents.empty()) {
    fmt::print(stderr, "kvist-simulate: no trace given: use --mooncake FILE or --agents FOLDER\n");
    return 2;
  }
  const absl::StatusOr<PrefixTrace> trace = Read(options);
  if (!trace.ok()) {
    fmt::print(stderr, "kvist-simulate: {}\n", std::string(trace.status().message()));
    return 1;
  }
  PrintTable(*trace, options);
  return 0;
}
