#include "bench/daemon/mooncake_bench.h"

#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>

#include "bench/daemon/prompt.h"
#include "bench/peer_script.h"
#include "cachestore/await.h"

namespace kvist::bench {
namespace {

constexpr int kRounds = 9;
constexpr int kFirstRound = 1000;  // no prompt of another peer's
constexpr double kGoal = 1;        // ahead

void Flush(RemoteStore* store) {
  const absl::Status flushed = AwaitStatus([&](DoneStatus done) { store->Flush({}, std::move(done)); });
  if (!flushed.ok()) Fail(std::string(flushed.message()));
}

}  // namespace

void MooncakeFigures(const std::string& directory, RemoteStore* store, const Namespace& ns, Figures& figures) {
  const auto mooncake = PeerScript::Start("mooncake_store", directory, kPromptBlocks, ns.spec.payload_bytes());
  if (!mooncake.ok()) {
    std::printf("Mooncake Store is left out: %s\n", std::string(mooncake.status().message()).c_str());
    return;
  }
  const std::size_t bytes = kPromptBlocks * ns.spec.payload_bytes();
  std::vector<std::byte> source(bytes);
  std::vector<std::byte> target(bytes, std::byte{1});
  Flush(store);
  const int warm_up = static_cast<int>(store->arena().size() / bytes) + 1;
  std::vector<double> put;
  std::vector<double> get;
  std::vector<double> mooncake_put;
  std::vector<double> mooncake_get;
  for (int round = 0; round < warm_up + kRounds; ++round) {
    std::memset(source.data(), round + 1, source.size());
    std::memset(target.data(), 0, target.size());
    const double put_seconds = Seconds([&] { PutPrompt(store, ns, kFirstRound + round, source); });
    const double get_seconds = Seconds([&] { GetPrompt(store, ns, kFirstRound + round, target); });
    if (target != source) Fail("the bytes differ");
    Flush(store);
    if (round < warm_up) continue;
    const auto theirs = (*mooncake)->Run();
    if (!theirs.ok()) Fail("Mooncake Store: " + std::string(theirs.status().message()));
    put.push_back(put_seconds);
    get.push_back(get_seconds);
    mooncake_put.push_back(theirs->put_seconds);
    mooncake_get.push_back(theirs->get_seconds);
  }
  const double mib = static_cast<double>(bytes) / (1 << 20);
  std::printf(
      "put of %zu blocks through the daemon, its memory warm: %.0f MiB/s, Mooncake Store %.0f MiB/s; get %.0f "
      "MiB/s, Mooncake Store %.0f MiB/s (%s)\n",
      kPromptBlocks, mib / Median(put), mib / Median(mooncake_put), mib / Median(get), mib / Median(mooncake_get),
      (*mooncake)->text().c_str());
  figures.AtLeast("daemon_put_vs_mooncake", Median(mooncake_put) / Median(put), kGoal);
  figures.AtLeast("daemon_get_vs_mooncake", Median(mooncake_get) / Median(get), kGoal);
}

}  // namespace kvist::bench
