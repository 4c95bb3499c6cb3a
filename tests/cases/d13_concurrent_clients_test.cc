// D13, through the daemon: connections of their own, payloads by shared memory, DRAM too small for the prompts.
#include <random>
#include <thread>

#include "gmock/gmock.h"
#include "tests/src/testing/blocks.h"
#include "tests/src/testing/connect.h"
#include "tests/src/testing/local_server.h"
#include "tests/src/testing/scratch.h"

namespace kvist {
namespace {

constexpr int kClients = 16;
constexpr TokenId kPrompts = 20;
constexpr int kBlocks = 4;
constexpr int kRounds = 25;

TEST(D13ConcurrentClients, EveryHitHoldsItsBytes) {
  const testing::Scratch scratch;
  LocalStoreOptions options = testing::SmallStore(scratch.path("store"));
  options.dram_bytes = std::uint64_t{2} << 20;  // 30 blocks of the 80
  auto server = testing::LocalServer::Start(scratch.path("s"), options);
  ASSERT_TRUE(server.ok()) << server.status();
  std::vector<std::thread> clients;
  for (int i = 0; i < kClients; ++i) {
    clients.emplace_back([&, i] {
      const auto store = testing::Connect(scratch.path("s"));
      ASSERT_NE(store, nullptr);
      const auto ns = store->OpenNamespace(testing::SmallSpec(), {});
      ASSERT_TRUE(ns.ok()) << ns.status();
      std::mt19937 random(static_cast<std::uint32_t>(i));
      for (int round = 0; round < kRounds; ++round) {
        const TokenId seed = 1 + random() % kPrompts;
        const int hits = testing::GoodHits(store.get(), ns->id, kBlocks, seed);
        ASSERT_GE(hits, 0) << "an error, or other bytes";
        if (hits == kBlocks) continue;
        const absl::Status put = testing::PutPrompt(store.get(), ns->id, kBlocks, seed,
                                                    round % 2 == 0 ? Durability::kMemory : Durability::kDurable);
        EXPECT_TRUE(put.ok() || absl::IsResourceExhausted(put) || absl::IsNotFound(put)) << put;
      }
    });
  }
  for (std::thread& client : clients) client.join();
  const auto stats = server->store->Stats();
  ASSERT_TRUE(stats.ok());
  EXPECT_EQ(stats->corrupt_blocks, 0u);
  EXPECT_GT(stats->evicted_blocks_dram, 0u);
  EXPECT_GT(stats->hit_blocks_nvme, 0u) << "nothing moved up: this tests nothing";
}

}  // namespace
}  // namespace kvist
