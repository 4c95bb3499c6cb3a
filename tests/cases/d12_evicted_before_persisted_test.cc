// D12: DRAM smaller than what is written quickly. Whatever was acknowledged as durable is there afterwards, also after
// the process was killed right after the last acknowledgement; what was not is wholly absent or wholly there.
#include <cstdio>

#include "tests/cases/child_process.h"
#include "tests/cases/small_store.h"
#include "tests/conformance/test_chain.h"

namespace kvist {
namespace {

// OpenSmallStore's DRAM holds two such prefixes, its NVMe more than twenty.
constexpr std::size_t kBlocks = 6;
constexpr std::uint32_t kPrefixes = 5;

TEST(EvictedBeforePersisted, EveryAcknowledgedPrefixReplaysWhole) {
  TestDirectory directory;
  auto store = OpenSmallStore(directory.path() + "/store");
  ASSERT_TRUE(store.ok()) << store.status();
  const Namespace ns = *(*store)->OpenNamespace(TestSpec(), {});
  for (std::uint32_t seed = 0; seed < kPrefixes; ++seed) {
    ASSERT_TRUE(CommitChain(**store, ns, TestChain(seed, kBlocks), Durability::kDurable).ok());
  }
  EXPECT_GT((*store)->Stats()->evicted_blocks_dram, 0u);
  for (int round = 0; round < 2; ++round) {
    for (std::uint32_t seed = 0; seed < kPrefixes; ++seed) {
      const auto tokens = TestChain(seed, kBlocks);
      const auto lease = AcquireNow(**store, ns, tokens);
      ASSERT_TRUE(lease.ok()) << lease.status();
      EXPECT_EQ(lease->blocks().size(), kBlocks) << "prefix " << seed;
      EXPECT_TRUE(LeaseIsExact(*lease, ns, tokens));
    }
  }
}

TEST(EvictedBeforePersisted, EveryAcknowledgedBlockSurvivesAKill) {
  TestDirectory directory;
  const std::string path = directory.path() + "/store";
  std::vector<std::size_t> acked(20, 0);  // blocks, by prefix
  {
    ChildProcess writer({STORE_WRITER_BINARY, path, "0", std::to_string(acked.size()), std::to_string(kBlocks)});
    std::size_t total = 0;
    while (total < kPrefixes * kBlocks) {
      const auto line = writer.ReadLine("acked ");
      ASSERT_TRUE(line) << "the writer ended early";
      unsigned seed = 0;
      std::size_t index = 0;
      ASSERT_EQ(std::sscanf(line->c_str(), "%u %zu", &seed, &index), 2);
      acked[seed] = index + 1;
      ++total;
    }
    writer.Kill();
    // What it had acknowledged before it died but after we stopped reading counts too.
    while (const auto line = writer.ReadLine("acked ")) {
      unsigned seed = 0;
      std::size_t index = 0;
      if (std::sscanf(line->c_str(), "%u %zu", &seed, &index) == 2) acked[seed] = index + 1;
    }
  }
  auto store = OpenSmallStore(path);
  ASSERT_TRUE(store.ok()) << store.status();
  const Namespace ns = *(*store)->OpenNamespace(TestSpec(), {});
  for (std::uint32_t seed = 0; seed < acked.size(); ++seed) {
    const auto tokens = TestChain(seed, kBlocks);
    const auto lease = AcquireNow(**store, ns, tokens);
    ASSERT_TRUE(lease.ok()) << lease.status();
    EXPECT_GE(lease->blocks().size(), acked[seed]) << "prefix " << seed;
    EXPECT_TRUE(LeaseIsExact(*lease, ns, tokens));
  }
  EXPECT_EQ((*store)->Stats()->corrupt_blocks, 0u);
}

}  // namespace
}  // namespace kvist
