// kvist status: what a store holds and what became of the requests it got.
#include <cstdint>
#include <cstdio>
#include <initializer_list>
#include <memory>
#include <string_view>
#include <utility>

#include "cachestore/prefix_store.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"
#include "tools/cli/command.h"
#include "tools/cli/quantity.h"
#include "tools/cli/store_flag.h"

namespace kvist::cli {
namespace {

struct StatusFlags {
  StoreFlag store;
  bool json = false;
};

using Json = nlohmann::ordered_json;

Json ToJson(const TierStats& tier) {
  return {{"blocks", tier.blocks}, {"bytes", tier.bytes}, {"capacity_bytes", tier.capacity_bytes}};
}

Json ToJson(const SharedStats& shared) {
  if (!shared.configured) return nullptr;
  return {{"available", shared.available},
          {"hit_blocks", shared.hit_blocks},
          {"read_bytes", shared.read_bytes},
          {"written_blocks", shared.written_blocks},
          {"written_bytes", shared.written_bytes},
          {"timeouts", shared.timeouts},
          {"errors", shared.errors},
          {"corrupt_blocks", shared.corrupt_blocks},
          {"write_back_pending", shared.write_back_pending},
          {"write_back_dropped", shared.write_back_dropped}};
}

Json ToJson(const StoreStats& stats) {
  return {{"dram", ToJson(stats.dram)},
          {"nvme", ToJson(stats.nvme)},
          {"shared", ToJson(stats.shared)},
          {"namespaces", stats.namespaces},
          {"leased_blocks", stats.leased_blocks},
          {"hit_blocks_dram", stats.hit_blocks_dram},
          {"hit_blocks_nvme", stats.hit_blocks_nvme},
          {"miss_blocks", stats.miss_blocks},
          {"committed_blocks", stats.committed_blocks},
          {"duplicate_commits", stats.duplicate_commits},
          {"evicted_blocks_dram", stats.evicted_blocks_dram},
          {"evicted_blocks_nvme", stats.evicted_blocks_nvme},
          {"expired_blocks", stats.expired_blocks},
          {"corrupt_blocks", stats.corrupt_blocks},
          {"write_back_pending", stats.write_back_pending},
          {"device_errors", stats.device_errors},
          {"loading", stats.loading}};
}

void PrintTier(std::string_view name, const TierStats& tier) {
  fmt::print("{:<6}{:>10} blocks  {:>10} of {}\n", name, tier.blocks, HumanBytes(tier.bytes),
             HumanBytes(tier.capacity_bytes));
}

using Row = std::pair<std::string_view, std::uint64_t>;

void PrintRows(std::initializer_list<Row> rows) {
  for (const auto& [name, value] : rows) fmt::print("{:<20}{:>12}\n", name, value);
}

void PrintShared(const SharedStats& shared) {
  if (!shared.configured) return;
  fmt::print("{:<6}{:>17}  {:>10} read, {} written\n", "shared", shared.available ? "answers" : "does not answer",
             HumanBytes(shared.read_bytes), HumanBytes(shared.written_bytes));
}

void PrintSharedRows(const SharedStats& shared) {
  if (!shared.configured) return;
  PrintRows({
      {"blocks hit in shared", shared.hit_blocks},
      {"written to shared", shared.written_blocks},
      {"waiting for shared", shared.write_back_pending},
      {"not written there", shared.write_back_dropped},
      {"shared: timeouts", shared.timeouts},
      {"shared: errors", shared.errors},
      {"shared: corrupt", shared.corrupt_blocks},
  });
}

void Print(const StoreStats& stats) {
  PrintTier("dram", stats.dram);
  PrintTier("nvme", stats.nvme);
  if (stats.loading) fmt::print("      the NVMe tier's index is still read: blocks are counted as they are loaded\n");
  PrintShared(stats.shared);
  PrintRows({
      {"namespaces", stats.namespaces},
      {"blocks leased now", stats.leased_blocks},
      {"blocks hit in dram", stats.hit_blocks_dram},
      {"blocks hit in nvme", stats.hit_blocks_nvme},
      {"blocks missed", stats.miss_blocks},
      {"blocks committed", stats.committed_blocks},
      {"committed twice", stats.duplicate_commits},
      {"evicted from dram", stats.evicted_blocks_dram},
      {"evicted from nvme", stats.evicted_blocks_nvme},
      {"expired", stats.expired_blocks},
      {"corrupt, so missed", stats.corrupt_blocks},
      {"waiting for nvme", stats.write_back_pending},
      {"device errors", stats.device_errors},
  });
  PrintSharedRows(stats.shared);
}

Outcome Run(const StatusFlags& flags) {
  auto store = Open(flags.store, /*existing=*/true);
  if (!store.ok()) return Outcome::Failure(ExitCode::kStore, store.status());
  const auto stats = (*store)->Stats();
  if (!stats.ok()) return Outcome::Failure(ExitCode::kStore, stats.status());
  if (flags.json) {
    fmt::print("{}\n", ToJson(*stats).dump(2));
  } else {
    Print(*stats);
  }
  return Outcome::Ok();
}

}  // namespace

Command AddStatus(CLI::App& parent) {
  auto flags = std::make_shared<StatusFlags>();
  CLI::App* app = parent.add_subcommand("status", "What a store holds, and its counters since it was opened");
  flags->store.Add(*app, /*required=*/true);
  app->add_flag("--json", flags->json, "One JSON object on stdout");
  return {app, [flags] { return Run(*flags); }};
}

}  // namespace kvist::cli
