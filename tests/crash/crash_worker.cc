// crash_worker DIRECTORY SEED tight|ample: a store under load until it is killed. See crash_load.h.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "fmt/format.h"
#include "tests/crash/crash_load.h"

namespace kvist::crash {
namespace {

// One write, so that lines of threads don't mix and nothing said is lost with the process.
void Say(const std::string& line) {
  if (::write(STDOUT_FILENO, line.data(), line.size()) != static_cast<ssize_t>(line.size())) std::_Exit(3);
}

class Load {
 public:
  Load(LocalStore* store, FakeClock* clock, std::vector<Namespace> namespaces, int thread, std::uint64_t seed)
      : store_(*store), clock_(*clock), namespaces_(std::move(namespaces)), thread_(thread), random_(seed + thread) {}

  [[noreturn]] void Run() {
    for (;;) {
      switch (random_() % 16) {
        case 0:
          Drop(Own());
          break;
        case 1:
          (void)store_.Sweep();
          break;
        case 2:
          (void)FlushNow(store_);
          break;
        case 3:
          if (thread_ == 0) clock_.Advance(absl::Minutes(random_() % 10));
          break;
        case 4:
        case 5:
        case 6:
        case 7:
        case 8:
          Read(static_cast<int>(random_() % kTenants));
          break;
        default:
          Write(Own());
      }
    }
  }

 private:
  int Own() { return thread_ * kTenantsPerThread + static_cast<int>(random_() % kTenantsPerThread); }
  std::uint32_t Seed() { return static_cast<std::uint32_t>(random_() % kSeeds); }

  void Drop(int tenant) {
    if (random_() % 4 != 0) return;
    Say(fmt::format("dropping {}\n", tenant));
    DropRequest request;
    request.ns = namespaces_[tenant].id;
    if (DropNow(store_, request).ok()) Say(fmt::format("dropped {}\n", tenant));
  }

  void Read(int tenant) {
    const std::uint32_t seed = Seed();
    const auto tokens = TestTokens(seed, kBlocks * namespaces_[tenant].spec.block_tokens);
    const auto lease = AcquireNow(store_, namespaces_[tenant], tokens);
    if (lease.ok() && !LeaseIsExact(*lease, namespaces_[tenant], tokens)) Say(fmt::format("wrong {}\n", seed));
  }

  void Write(int tenant) {
    const Namespace& ns = namespaces_[tenant];
    const std::uint32_t seed = Seed();
    const auto tokens = TestTokens(seed, kBlocks * ns.spec.block_tokens);
    BlockKey parent = ns.id;
    for (std::size_t i = 0; i < kBlocks; ++i) {
      const auto key = CommitBlock(store_, ns, parent, tokens, i, Durability::kDurable);
      if (!key.ok()) return;  // no room, or the parent was evicted or expired meanwhile
      parent = *key;
      Say(fmt::format("acked {} {} {}\n", tenant, seed, i));
    }
  }

  LocalStore& store_;
  FakeClock& clock_;
  const std::vector<Namespace> namespaces_;
  const int thread_;
  std::mt19937_64 random_;
};

int Main(const std::string& directory, std::uint64_t seed, bool tight) {
  FakeClock clock;
  auto store = LocalStore::Open(OptionsOf(directory, tight, &clock));
  if (!store.ok()) {
    Say(fmt::format("wrong open: {}\n", store.status().ToString()));
    return 1;
  }
  std::vector<Namespace> namespaces;
  for (int tenant = 0; tenant < kTenants; ++tenant) {
    const auto ns = (*store)->OpenNamespace(SpecOf(tenant), RetentionOf(tenant));
    if (!ns.ok()) {
      Say(fmt::format("wrong namespace: {}\n", ns.status().ToString()));
      return 1;
    }
    namespaces.push_back(*ns);
  }
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] { Load(store->get(), &clock, namespaces, i, seed).Run(); });
  }
  for (std::thread& thread : threads) thread.join();
  return 0;
}

}  // namespace
}  // namespace kvist::crash

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  return kvist::crash::Main(argv[1], std::strtoull(argv[2], nullptr, 10), std::strcmp(argv[3], "tight") == 0);
}
