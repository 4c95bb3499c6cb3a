// kvist ls: the namespaces of a store.
#include <algorithm>
#include <memory>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "cachestore/prefix_store.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"
#include "tools/cli/command.h"
#include "tools/cli/quantity.h"
#include "tools/cli/store_flag.h"

namespace kvist::cli {
namespace {

struct LsFlags {
  StoreFlag store;
  bool json = false;
};

using Json = nlohmann::ordered_json;

std::string LastUsed(const NamespaceInfo& info) {
  if (info.last_used == absl::InfinitePast()) return "";
  return absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", info.last_used, absl::UTCTimeZone());
}

// The salt is what keeps tenants apart, so it is not shown: only that there is one.
Json ToJson(const NamespaceInfo& info) {
  const NamespaceSpec& spec = info.ns.spec;
  return {{"namespace", info.ns.id.ToHex()},
          {"tenant", spec.tenant},
          {"salted", !spec.salt.empty()},
          {"model", spec.model},
          {"layout", spec.layout},
          {"positional", spec.positional},
          {"adapter", spec.adapter},
          {"block_tokens", spec.block_tokens},
          {"payload_bytes", spec.payload_bytes()},
          {"blocks", info.blocks},
          {"bytes", info.bytes},
          {"last_used", LastUsed(info)}};
}

void Print(const std::vector<NamespaceInfo>& namespaces) {
  fmt::print("{:<32}  {:<16}  {:>8}  {:>10}  {:>10}  {}\n", "NAMESPACE", "TENANT", "BLOCKS", "TOKENS", "SIZE",
             "LAST USED");
  for (const NamespaceInfo& info : namespaces) {
    const NamespaceSpec& spec = info.ns.spec;
    const std::string tenant = (spec.tenant.empty() ? "-" : spec.tenant) + (spec.salt.empty() ? "" : " +salt");
    const std::string used = LastUsed(info);
    fmt::print("{:<32}  {:<16}  {:>8}  {:>10}  {:>10}  {}\n", info.ns.id.ToHex(), tenant, info.blocks,
               info.blocks * spec.block_tokens, HumanBytes(info.bytes), used.empty() ? "-" : used);
  }
}

Outcome Run(const LsFlags& flags) {
  auto store = Open(flags.store, /*existing=*/true);
  if (!store.ok()) return Outcome::Failure(ExitCode::kStore, store.status());
  auto namespaces = (*store)->ListNamespaces();
  if (!namespaces.ok()) return Outcome::Failure(ExitCode::kStore, namespaces.status());
  std::sort(namespaces->begin(), namespaces->end(),
            [](const auto& a, const auto& b) { return a.last_used > b.last_used; });
  if (!flags.json) {
    Print(*namespaces);
    return Outcome::Ok();
  }
  Json all = Json::array();
  for (const NamespaceInfo& info : *namespaces) all.push_back(ToJson(info));
  // A tenant name is any bytes: what is not UTF-8 is shown as U+FFFD instead of failing the command.
  fmt::print("{}\n", all.dump(2, ' ', false, Json::error_handler_t::replace));
  return Outcome::Ok();
}

}  // namespace

Command AddLs(CLI::App& parent) {
  auto flags = std::make_shared<LsFlags>();
  CLI::App* app = parent.add_subcommand("ls", "The namespaces of a store, last used first");
  flags->store.Add(*app, /*required=*/true);
  app->add_flag("--json", flags->json, "One JSON array on stdout");
  return {app, [flags] { return Run(*flags); }};
}

}  // namespace kvist::cli
