// kvist drop: forgets blocks at once.
#include <memory>
#include <optional>
#include <string>

#include "cachestore/await.h"
#include "cachestore/prefix_store.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"
#include "tools/cli/command.h"
#include "tools/cli/quantity.h"
#include "tools/cli/store_flag.h"

namespace kvist::cli {
namespace {

struct DropFlags {
  StoreFlag store;
  std::string ns;
  std::optional<std::string> tenant;  // "" is a tenant too: that of requests which name none
  bool all = false;
  bool json = false;
};

Outcome Run(const DropFlags& flags) {
  DropRequest request;
  request.tenant = flags.tenant;
  request.all = flags.all;
  if (!flags.ns.empty()) {
    request.ns = NamespaceId::FromHex(flags.ns);
    if (!request.ns) {
      return Outcome::Failure(ExitCode::kUsage,
                              fmt::format("--namespace {}: not 32 hex digits, as `kvist ls` shows them.", flags.ns));
    }
  }
  auto store = Open(flags.store, /*existing=*/true);
  if (!store.ok()) return Outcome::Failure(ExitCode::kStore, store.status());
  const auto dropped =
      Await<DropResult>([&](Done<DropResult> done) { (*store)->Drop(request, CallOptions{}, std::move(done)); });
  if (!dropped.ok()) return Outcome::Failure(ExitCode::kStore, dropped.status());
  if (flags.json) {
    fmt::print("{}\n", nlohmann::ordered_json{{"blocks", dropped->blocks}, {"bytes", dropped->bytes}}.dump(2));
  } else {
    fmt::print("dropped {} blocks, {}\n", dropped->blocks, HumanBytes(dropped->bytes));
  }
  return Outcome::Ok();
}

}  // namespace

Command AddDrop(CLI::App& parent) {
  auto flags = std::make_shared<DropFlags>();
  CLI::App* app = parent.add_subcommand("drop", "Forget blocks at once: of a namespace, of a tenant, or all");
  flags->store.Add(*app, /*required=*/true);
  auto* which = app->add_option_group("what to drop");
  which->add_option("--namespace", flags->ns, "One namespace, as `kvist ls` shows it")->type_name("HEX");
  which->add_option("--tenant", flags->tenant, "All namespaces of a tenant")->type_name("NAME");
  which->add_flag("--all", flags->all, "Everything");
  which->require_option(1);
  app->add_flag("--json", flags->json, "One JSON object on stdout");
  return {app, [flags] { return Run(*flags); }};
}

}  // namespace kvist::cli
