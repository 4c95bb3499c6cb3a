// kvist fsck: checks a store's folder, repairs it, rebuilds its index.
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

#include "cachestore/fsck/fsck.h"
#include "cachestore/io/clock.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"
#include "tools/cli/command.h"
#include "tools/cli/progress.h"
#include "tools/cli/quantity.h"

namespace kvist::cli {
namespace {

struct FsckFlags {
  std::string directory;
  bool repair = false;
  bool rebuild_index = false;
  bool json = false;
  bool progress = false;
};

using Json = nlohmann::ordered_json;

Json AsJson(const FsckProblem& problem) {
  Json json = {{"path", problem.path},
               {"what", problem.what},
               {"consequence", problem.consequence},
               {"repaired", problem.repaired}};
  if (problem.offset) json["offset"] = *problem.offset;
  if (problem.block) json["block"] = problem.block->ToHex();
  return json;
}

Json AsJson(const FsckReport& report) {
  Json problems = Json::array();
  for (const FsckProblem& problem : report.problems) problems.push_back(AsJson(problem));
  return {{"clean", report.problems_total == 0},
          {"problems_total", report.problems_total},
          {"repaired", report.repaired},
          {"index_rebuilt", report.index_rebuilt},
          {"segments", report.segments},
          {"namespaces", report.namespaces},
          {"blocks", report.blocks},
          {"good_blocks", report.good_blocks},
          {"good_bytes", report.good_bytes},
          {"unreachable_blocks", report.unreachable_blocks},
          {"problems", problems},
          {"notes", report.notes}};
}

void Print(const FsckReport& report) {
  for (const FsckProblem& problem : report.problems) {
    std::string where = problem.path;
    if (problem.offset) where += fmt::format(" at {}", *problem.offset);
    if (problem.block) where += fmt::format(", block {}", problem.block->ToHex());
    fmt::print("{}: {}: {}\n", where, problem.what, problem.repaired ? "repaired" : problem.consequence);
  }
  if (report.problems_total > report.problems.size()) {
    fmt::print("and {} more\n", report.problems_total - report.problems.size());
  }
  for (const std::string& note : report.notes) fmt::print("note: {}\n", note);
  fmt::print("{} segments, {} namespaces, {} of {} blocks good, {}: {}\n", report.segments, report.namespaces,
             report.good_blocks, report.index_rebuilt ? report.good_blocks : report.blocks,
             HumanBytes(report.good_bytes), report.problems_total == 0 ? "clean" : "not clean");
  if (report.index_rebuilt) fmt::print("the index was rebuilt\n");
}

Outcome Run(const FsckFlags& flags) {
  FsckOptions options;
  options.directory = flags.directory;
  options.repair = flags.repair;
  options.rebuild_index = flags.rebuild_index;
  const SystemClock clock;
  Progress progress(stderr, flags.progress, &clock);
  options.progress = [&](std::uint64_t done, std::uint64_t total) {
    constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
    progress.Update("checking, MiB", done / kMiB, (total + kMiB - 1) / kMiB);
  };
  const absl::StatusOr<FsckReport> report = Fsck(options);
  progress.Clear();
  if (!report.ok()) return Outcome::Failure(ExitCode::kStore, report.status());
  if (flags.json) {
    // A path is any bytes.
    fmt::print("{}\n", AsJson(*report).dump(2, ' ', false, Json::error_handler_t::replace));
  } else {
    Print(*report);
  }
  if (report->problems_total == 0) return Outcome::Ok();
  const std::string found = fmt::format("{} problem{} in {}", report->problems_total,
                                        report->problems_total == 1 ? "" : "s", flags.directory);
  return Outcome::Failure(ExitCode::kFailed, report->repaired
                                                 ? found + ", repaired: its store opens, and what was damaged is a miss"
                                                 : found + "; --repair drops what is bad and keeps the rest");
}

}  // namespace

Command AddFsck(CLI::App& parent) {
  auto flags = std::make_shared<FsckFlags>();
  CLI::App* app = parent.add_subcommand("fsck", "Check every byte of a store's folder; the store must be closed");
  app->add_option("directory", flags->directory, "The store's folder")->required()->type_name("DIR");
  app->add_flag("--repair", flags->repair, "Drop what is bad, restore what has a copy; rebuild the index if need be");
  app->add_flag("--rebuild-index", flags->rebuild_index,
                "Repair, and make the index anew from the segments (last uses, extended expiries and pins are kept "
                "where the old index can be read)");
  app->add_flag("--json", flags->json, "One JSON object on stdout");
  app->add_flag("--progress", flags->progress, "Progress also where stderr is no terminal");
  app->footer(
      "Exit codes: 0 clean; 1 problems found (with --repair: and repaired); 4 not a store, in use, or beyond "
      "repair.");
  return {app, [flags] { return Run(*flags); }};
}

}  // namespace kvist::cli
