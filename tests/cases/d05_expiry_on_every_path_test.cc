// D5: expiry must be checked on every path that reads, and what replaced an expired block must not show through it.
#include "tests/conformance/local_store_factory.h"

namespace kvist {
namespace {

TEST(ExpiryOnEveryPath, AfterHalfASecondNothingIsFoundOrLeased) {
  LocalStoreFactory factory;
  auto store = factory.OpenLocal({.dram_bytes = 1 << 20, .nvme_bytes = 8 << 20, .segment_bytes = 2 << 20});
  ASSERT_TRUE(store.ok()) << store.status();
  const Namespace ns = *(*store)->OpenNamespace(TestSpec(), {.ttl = absl::Milliseconds(500)});
  NamespaceSpec lasting_spec = TestSpec();
  lasting_spec.salt = "lasting";
  const Namespace lasting = *(*store)->OpenNamespace(lasting_spec, {});
  const auto tokens = TestChain(1, 2);
  for (const bool evicted_from_dram : {false, true}) {
    ASSERT_TRUE(CommitChain(**store, ns, tokens, Durability::kDurable).ok());
    ASSERT_EQ(MatchedBlocks(**store, ns, tokens), 2u);
    factory.clock().Advance(absl::Seconds(1));
    if (evicted_from_dram) {
      for (std::uint32_t seed = 10; seed < 30; ++seed) {  // memory reused by others
        ASSERT_TRUE(CommitChain(**store, lasting, TestChain(seed, 2), Durability::kDurable).ok());
      }
    }
    for (const std::size_t blocks : {2u, 1u}) {  // together and one at a time
      const auto part = std::span(tokens).first(blocks * ns.spec.block_tokens);
      EXPECT_EQ(MatchedBlocks(**store, ns, part), 0u);
      EXPECT_TRUE(AcquireNow(**store, ns, part)->empty());
      EXPECT_TRUE(AcquireNow(**store, ns, part)->empty()) << "having asked once must not revive it";
      const auto touched =
          Await<std::size_t>([&](Done<std::size_t> done) { (*store)->Touch(ns.id, part, {}, std::move(done)); });
      EXPECT_EQ(*touched, 0u);
    }
  }
  // Put again, it lives again.
  ASSERT_TRUE(CommitChain(**store, ns, tokens).ok());
  const auto lease = AcquireNow(**store, ns, tokens);
  EXPECT_EQ(lease->blocks().size(), 2u);
  EXPECT_TRUE(LeaseIsExact(*lease, ns, tokens));
}

}  // namespace
}  // namespace kvist
