// D6: what a lookup saw may be gone by the time of the read; then the hit ends before the gap.
#include <filesystem>

#include "tests/cases/stored_record.h"
#include "tests/conformance/local_store_factory.h"

namespace kvist {
namespace {

constexpr std::size_t kBlocks = 8;

class EvictedBetweenMatchAndRead : public testing::Test {
 protected:
  // Eight blocks on NVMe, none in DRAM, and a match that saw all of them.
  void SetUp() override {
    Open();
    ns_ = *store_->OpenNamespace(TestSpec(), {});
    keys_ = *CommitChain(*store_, ns_, tokens_, Durability::kDurable);
    Open();
    ASSERT_EQ(MatchedBlocks(*store_, ns_, tokens_), kBlocks);
  }
  void Open() {
    store_.reset();
    auto store = factory_.OpenLocal({.dram_bytes = 2 << 20, .nvme_bytes = 8 << 20, .segment_bytes = 1 << 20});
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
  }
  void ExpectLease(std::size_t blocks) {
    const auto lease = AcquireNow(*store_, ns_, tokens_);
    ASSERT_TRUE(lease.ok()) << lease.status();
    EXPECT_EQ(lease->blocks().size(), blocks);
    EXPECT_TRUE(LeaseIsExact(*lease, ns_, tokens_));
  }
  // What an engine does after a short hit.
  void PutRestFrom(std::size_t first) {
    for (std::size_t i = first; i < kBlocks; ++i) {
      ASSERT_TRUE(CommitBlock(*store_, ns_, keys_[i - 1], tokens_, i, Durability::kDurable).ok());
    }
  }

  LocalStoreFactory factory_;
  std::unique_ptr<LocalStore> store_;
  Namespace ns_;
  const std::vector<TokenId> tokens_ = TestChain(1, kBlocks);
  std::vector<BlockKey> keys_;
};

TEST_F(EvictedBetweenMatchAndRead, AnUnreadableBlockEndsTheHit) {
  const auto record = FindStoredRecord(factory_.store_directory(), keys_[5]);
  ASSERT_TRUE(record);
  InvertStoredBytes(*record, 0, record->record_bytes);
  ExpectLease(5);
  EXPECT_EQ(store_->Stats()->corrupt_blocks, 1u);
  PutRestFrom(5);
  ExpectLease(kBlocks);
  Open();
  ExpectLease(kBlocks);
}

TEST_F(EvictedBetweenMatchAndRead, AShortReadEndsTheHit) {
  const auto record = FindStoredRecord(factory_.store_directory(), keys_[5]);
  ASSERT_TRUE(record);
  std::filesystem::resize_file(record->file, record->offset + record->record_bytes / 2);
  ExpectLease(5);
}

TEST_F(EvictedBetweenMatchAndRead, ADropInBetweenIsAMiss) {
  ASSERT_TRUE(DropNow(*store_, {.ns = ns_.id, .tenant = {}, .all = false}).ok());
  ExpectLease(0);
}

TEST_F(EvictedBetweenMatchAndRead, EvictionInBetweenShortensTheHitOrLeavesIt) {
  for (std::uint32_t seed = 10; seed < 40; ++seed) {
    ASSERT_TRUE(CommitChain(*store_, ns_, TestChain(seed, 6), Durability::kDurable).ok());
  }
  const auto lease = AcquireNow(*store_, ns_, tokens_);
  ASSERT_TRUE(lease.ok());
  EXPECT_LT(lease->blocks().size(), kBlocks) << "the NVMe tier holds far less than was put after it";
  EXPECT_TRUE(LeaseIsExact(*lease, ns_, tokens_));
}

}  // namespace
}  // namespace kvist
