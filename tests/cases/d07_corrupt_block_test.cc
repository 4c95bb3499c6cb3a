// D7: a damaged stored block is a miss; nothing of it is served, and the store goes on working.
#include "tests/cases/stored_record.h"
#include "tests/conformance/local_store_factory.h"

namespace kvist {
namespace {

constexpr std::size_t kBlocks = 4;

TEST(CorruptBlock, WhereverItIsDamagedItIsAMissAndOthersAreFine) {
  LocalStoreFactory factory;
  auto store = factory.OpenLocal({});
  ASSERT_TRUE(store.ok()) << store.status();
  const Namespace ns = *(*store)->OpenNamespace(TestSpec(), {});
  const auto unrelated = TestChain(99, kBlocks);
  ASSERT_TRUE(CommitChain(**store, ns, unrelated, Durability::kDurable).ok());

  enum class Where { kStart, kTokens, kMiddle, kLast };
  std::uint32_t seed = 1;
  for (const Where where : {Where::kStart, Where::kTokens, Where::kMiddle, Where::kLast}) {
    SCOPED_TRACE(static_cast<int>(where));
    const auto tokens = TestChain(seed++, kBlocks);
    const auto keys = CommitChain(**store, ns, tokens, Durability::kDurable);
    ASSERT_TRUE(keys.ok());
    store->reset();
    const auto record = FindStoredRecord(factory.store_directory(), (*keys)[2]);
    ASSERT_TRUE(record);
    const std::size_t at = where == Where::kStart    ? 0
                           : where == Where::kTokens ? 130
                           : where == Where::kMiddle ? record->record_bytes / 2
                                                     : record->record_bytes - 64;
    InvertStoredBytes(*record, at, where == Where::kLast ? 64 : 1);
    store = factory.OpenLocal({});
    ASSERT_TRUE(store.ok()) << store.status();

    for (int again = 0; again < 2; ++again) {
      const auto lease = AcquireNow(**store, ns, tokens);
      ASSERT_TRUE(lease.ok()) << lease.status();
      EXPECT_EQ(lease->blocks().size(), 2u);
      EXPECT_TRUE(LeaseIsExact(*lease, ns, tokens));
    }
    EXPECT_EQ((*store)->Stats()->corrupt_blocks, 1u);
    const auto other = AcquireNow(**store, ns, unrelated);
    ASSERT_TRUE(other.ok());
    EXPECT_EQ(other->blocks().size(), kBlocks);
    EXPECT_TRUE(LeaseIsExact(*other, ns, unrelated));
    // Computed again and put again, it is whole again: also after another restart.
    ASSERT_TRUE(CommitChain(**store, ns, tokens, Durability::kDurable).ok());
    store->reset();
    store = factory.OpenLocal({});
    ASSERT_TRUE(store.ok());
    const auto healed = AcquireNow(**store, ns, tokens);
    ASSERT_TRUE(healed.ok());
    EXPECT_EQ(healed->blocks().size(), kBlocks);
    EXPECT_TRUE(LeaseIsExact(*healed, ns, tokens));
  }
}

}  // namespace
}  // namespace kvist
