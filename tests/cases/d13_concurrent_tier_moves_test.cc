// D13: the same prompt, many clients at once, and DRAM so small that blocks move between tiers all the time. Whoever is
// given a block is given its bytes, for as long as the lease lives.
#include <atomic>
#include <random>
#include <thread>

#include "tests/conformance/local_store_factory.h"

namespace kvist {
namespace {

constexpr int kClients = 96;
constexpr std::uint32_t kPrompts = 20;
constexpr std::size_t kBlocks = 4;
constexpr int kRounds = 8;

// One client's life: ask, compare, put what is missing, hold on to some leases while others move blocks about.
class Client {
 public:
  Client(PrefixStore* store, const Namespace& ns, std::uint32_t seed) : store_(*store), ns_(ns), random_(seed) {}

  void Run() {
    for (int round = 0; round < kRounds; ++round) {
      const auto tokens = TestChain(random_() % kPrompts, kBlocks);
      auto lease = AcquireNow(store_, ns_, tokens);
      if (!lease.ok()) {
        EXPECT_TRUE(absl::IsResourceExhausted(lease.status())) << lease.status();
        continue;
      }
      hits += lease->blocks().size();
      EXPECT_TRUE(LeaseIsExact(*lease, ns_, tokens));
      Put(tokens, *lease);
      EXPECT_TRUE(LeaseIsExact(*lease, ns_, tokens)) << "after others went on";
      if (random_() % 4 == 0) {
        EXPECT_TRUE(LeaseIsExact(kept_, ns_, kept_tokens_)) << "kept since an earlier round";
        kept_ = *std::move(lease);
        kept_tokens_ = tokens;
      }
    }
  }

  std::size_t hits = 0;

 private:
  // The blocks behind the lease, as an engine that has computed them. Any may be refused when DRAM is full, or miss its
  // parent, evicted meanwhile.
  void Put(std::span<const TokenId> tokens, const Lease& lease) {
    BlockKey parent = lease.empty() ? ns_.id : lease.blocks().back().key;
    for (std::size_t i = lease.blocks().size(); i < kBlocks; ++i) {
      const auto key =
          CommitBlock(store_, ns_, parent, tokens, i, random_() % 2 == 0 ? Durability::kDurable : Durability::kMemory);
      if (!key.ok()) {
        EXPECT_TRUE(absl::IsResourceExhausted(key.status()) || absl::IsNotFound(key.status())) << key.status();
        return;
      }
      parent = *key;
    }
  }

  PrefixStore& store_;
  const Namespace ns_;
  std::mt19937 random_;
  Lease kept_;
  std::vector<TokenId> kept_tokens_;
};

void RunClients(PrefixStore& store, const Namespace& ns) {
  std::atomic<std::size_t> hits = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < kClients; ++i) {
    threads.emplace_back([&, i] {
      Client client(&store, ns, static_cast<std::uint32_t>(i));
      client.Run();
      hits += client.hits;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(hits, 0u);
  const auto stats = store.Stats();
  ASSERT_TRUE(stats.ok());
  EXPECT_EQ(stats->corrupt_blocks, 0u);
  EXPECT_EQ(stats->leased_blocks, 0u);
}

// Alone again, each prompt is all there or can be put again, byte by byte.
void ExpectPromptsWhole(PrefixStore& store, const Namespace& ns) {
  for (std::uint32_t seed = 0; seed < kPrompts; ++seed) {
    const auto tokens = TestChain(seed, kBlocks);
    ASSERT_TRUE(CommitChain(store, ns, tokens, Durability::kDurable).ok()) << "prompt " << seed;
    const auto lease = AcquireNow(store, ns, tokens);
    ASSERT_TRUE(lease.ok()) << lease.status();
    EXPECT_EQ(lease->blocks().size(), kBlocks);
    EXPECT_TRUE(LeaseIsExact(*lease, ns, tokens));
  }
}

TEST(ConcurrentTierMoves, EveryLeaseHoldsItsBytesWhileDramIsTooSmall) {
  LocalStoreFactory factory;
  // 30 blocks of the 80; NVMe for all of them.
  auto store = factory.OpenLocal({.dram_bytes = 2 << 20, .nvme_bytes = 32 << 20, .segment_bytes = 2 << 20});
  ASSERT_TRUE(store.ok()) << store.status();
  const Namespace ns = *(*store)->OpenNamespace(TestSpec(), {});
  RunClients(**store, ns);
  const auto stats = (*store)->Stats();
  EXPECT_GT(stats->evicted_blocks_dram, 0u);
  EXPECT_GT(stats->hit_blocks_nvme, 0u) << "nothing moved up: this tests nothing";
  ExpectPromptsWhole(**store, ns);
}

TEST(ConcurrentTierMoves, EveryLeaseHoldsItsBytesWhileNvmeIsTooSmallToo) {
  class SharedFactory final : public LocalStoreFactory {
    void Adjust(LocalStoreOptions& options) override {
      options.shared.folder.directory = folder_.path();
      options.shared.folder.sync = false;
    }
    TestDirectory folder_;
  } factory;
  // NVMe, too, holds fewer than the 80: its segments are reused all the time, and the shared folder serves what left.
  auto store = factory.OpenLocal({.dram_bytes = 2 << 20, .nvme_bytes = 4 << 20, .segment_bytes = 512 << 10});
  ASSERT_TRUE(store.ok()) << store.status();
  const Namespace ns = *(*store)->OpenNamespace(TestSpec(), {});
  RunClients(**store, ns);
  EXPECT_GT((*store)->Stats()->evicted_blocks_nvme, 0u);
  ExpectPromptsWhole(**store, ns);
}

}  // namespace
}  // namespace kvist
