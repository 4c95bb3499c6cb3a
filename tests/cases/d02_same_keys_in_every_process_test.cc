// D2: the same tokens must have the same keys in every process, or nothing is ever found again.
#include "tests/cases/child_process.h"
#include "tests/cases/small_store.h"
#include "tests/conformance/test_chain.h"

namespace kvist {
namespace {

constexpr std::size_t kBlocks = 6;

TEST(SameKeysInEveryProcess, AndAFullHitForWhoDidNotPut) {
  TestDirectory directory;
  const std::string path = directory.path() + "/store";
  std::vector<std::vector<std::string>> outputs;
  for (const char* seed : {"0", "random", "12345"}) {
    // What makes other systems' keys differ: hash seeds, and addresses and contents of fresh memory.
    ChildProcess writer({STORE_WRITER_BINARY, path, "1", "1", std::to_string(kBlocks)},
                        {{"PYTHONHASHSEED", seed}, {"MALLOC_PERTURB_", "77"}});
    outputs.emplace_back();
    while (const auto line = writer.ReadLine("")) outputs.back().push_back(*line);
    EXPECT_EQ(writer.Wait(), 0);
    EXPECT_EQ(outputs.back().size(), kBlocks + 1);
    EXPECT_EQ(outputs.back(), outputs.front());
  }
  auto store = OpenSmallStore(path);
  ASSERT_TRUE(store.ok()) << store.status();
  const Namespace ns = *(*store)->OpenNamespace(TestSpec(), {});
  EXPECT_EQ("ns " + ns.id.ToHex(), outputs[0].at(0));
  const auto tokens = TestChain(1, kBlocks);
  const auto lease = AcquireNow(**store, ns, tokens);
  ASSERT_TRUE(lease.ok());
  ASSERT_EQ(lease->blocks().size(), kBlocks);
  for (std::size_t i = 0; i < kBlocks; ++i) {
    EXPECT_THAT(outputs[0].at(i + 1), testing::EndsWith(lease->blocks()[i].key.ToHex()));
  }
  EXPECT_TRUE(LeaseIsExact(*lease, ns, tokens));
}

}  // namespace
}  // namespace kvist
