// Figures of the daemon: a DRAM hit through it copies no payload; Redis (bench/daemon/redis_bench.h) and Mooncake Store
// (bench/daemon/mooncake_bench.h) beside it. A real server on a real socket; the prompt is that of the demo: 47 blocks
// of 64 tokens, 1.38 MiB each.
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "bench/daemon/mooncake_bench.h"
#include "bench/daemon/redis_bench.h"
#include "bench/figures.h"
#include "cachestore/await.h"
#include "cachestore/local_store.h"
#include "cachestore/lock_order_checks.h"
#include "src/client/remote_store.h"
#include "src/daemon/endpoint.h"
#include "src/daemon/server.h"

namespace kvist::bench {
namespace {

constexpr std::size_t kBlocks = 47;
constexpr std::size_t kBlockTokens = 64;
constexpr std::size_t kRounds = 31;

double SecondsSince(std::chrono::steady_clock::time_point from) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - from).count();
}

template <typename T>
T OrDie(absl::StatusOr<T> value) {
  if (!value.ok()) {
    std::fprintf(stderr, "daemon_bench: %s\n", std::string(value.status().message()).c_str());
    std::exit(1);
  }
  return std::move(*value);
}

NamespaceSpec DemoSpec() {
  NamespaceSpec spec;
  spec.model = "bench";
  spec.layout = "bench";
  spec.block_tokens = kBlockTokens;
  spec.layers = 30;
  spec.layer_bytes = 2 * 3 * 64 * 2 * kBlockTokens;  // K and V, 3 heads of 64, 2 bytes: SmolLM2-135M
  return spec;
}

std::vector<TokenId> FillStore(RemoteStore* store, const Namespace& ns) {
  std::vector<TokenId> tokens(kBlocks * kBlockTokens);
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<TokenId>(i * 7 + 1);
  BlockKey parent = ns.id;
  for (std::size_t i = 0; i < kBlocks; ++i) {
    WriteGrant grant = OrDie(store->Grant(ns.id));
    std::memset(grant.payload().data(), static_cast<int>(i + 1), grant.payload().size());
    const auto first = tokens.begin() + static_cast<std::ptrdiff_t>(i * kBlockTokens);
    CommitRequest request{.ns = ns.id,
                          .parent = parent,
                          .tokens = std::vector<TokenId>(first, first + kBlockTokens),
                          .grant = std::move(grant)};
    parent =
        OrDie(Await<BlockKey>([&](Done<BlockKey> done) { store->Commit(std::move(request), {}, std::move(done)); }));
  }
  return tokens;
}

// A hit, timed until the payloads are readable; false if a payload is not in the mapped arena or not the right bytes.
bool AcquireOnce(RemoteStore* store, const Namespace& ns, const std::vector<TokenId>& tokens, double* seconds,
                 Lease* lease) {
  const auto start = std::chrono::steady_clock::now();
  *lease = OrDie(Await<Lease>([&](Done<Lease> done) { store->Acquire(ns.id, tokens, kBlocks, {}, std::move(done)); }));
  *seconds = SecondsSince(start);
  const auto arena = store->arena();
  for (std::size_t i = 0; i < lease->blocks().size(); ++i) {
    const auto payload = lease->blocks()[i].payload;
    if (payload.data() < arena.data() || payload.data() + payload.size() > arena.data() + arena.size()) return false;
    if (payload.front() != static_cast<std::byte>(i + 1) || payload.back() != static_cast<std::byte>(i + 1))
      return false;
  }
  return lease->blocks().size() == kBlocks;
}

int Run(const std::string& directory) {
  auto endpoint = OrDie(daemon::Endpoint::Reserve(directory + "/s"));
  LocalStoreOptions options;
  options.nvme.directory = directory + "/store";
  options.nvme.capacity_bytes = std::uint64_t{4} << 30;
  options.dram_bytes = std::uint64_t{1} << 30;
  const auto store = OrDie(LocalStore::Open(options));
  const auto server = OrDie(daemon::Server::Start(store.get(), &endpoint, {}));
  RemoteStoreOptions remote;
  remote.socket_path = directory + "/s";
  const auto client = OrDie(RemoteStore::Connect(remote));
  const Namespace ns = OrDie(client->OpenNamespace(DemoSpec(), {}));
  const std::vector<TokenId> tokens = FillStore(client.get(), ns);
  if (!AwaitStatus([&](DoneStatus done) { client->Flush({}, std::move(done)); }).ok()) return 1;

  std::vector<double> acquires;
  std::vector<double> copies;
  std::vector<std::byte> copy(kBlocks * ns.spec.payload_bytes(), std::byte{1});
  bool in_place = true;
  for (std::size_t round = 0; round < kRounds; ++round) {
    Lease lease;
    double seconds = 0;
    in_place &= AcquireOnce(client.get(), ns, tokens, &seconds, &lease);
    acquires.push_back(seconds);
    const auto start = std::chrono::steady_clock::now();
    std::size_t at = 0;
    for (const Lease::Block& block : lease.blocks()) {
      std::memcpy(copy.data() + at, block.payload.data(), block.payload.size());
      at += block.payload.size();
    }
    copies.push_back(SecondsSince(start));
  }
  std::printf("hit of %zu blocks, %.1f MiB: %.3f ms through the daemon; copying them: %.3f ms\n", kBlocks,
              static_cast<double>(copy.size()) / (1 << 20), Median(acquires) * 1e3, Median(copies) * 1e3);
  Figures figures;
  figures.AtMost("daemon_dram_hit_vs_memcpy", Median(acquires) / Median(copies), 0.1);
  figures.AtLeast("daemon_dram_hit_in_place", in_place ? 1 : 0, 1);
  RedisFigures(directory, client.get(), ns, figures);
  MooncakeFigures(directory, client.get(), ns, figures);
  return figures.Report();
}

}  // namespace
}  // namespace kvist::bench

int main() {
  kvist::SkipLockOrderChecks();
  std::string directory = "/var/tmp/kvist-bench-XXXXXX";
  if (::mkdtemp(directory.data()) == nullptr) return 1;
  const int status = kvist::bench::Run(directory);
  std::error_code ignored;
  std::filesystem::remove_all(directory, ignored);
  return status;
}
