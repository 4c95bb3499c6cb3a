// Room on the device: what leaves when it is full, and that nothing else does.
#include <random>
#include <set>

#include "tests/cachestore/tier/nvme_fixture.h"

namespace kvist {
namespace {

using ::testing::HasSubstr;

// On tmpfs: these are about accounting, and write a lot.
class NvmeSpace : public NvmeFixture {
 protected:
  // LRU: what it evicts can be said in advance.
  NvmeSpace() : NvmeFixture("/dev/shm") { options_.eviction = EvictionKind::kLru; }

  // 10 segments of 10 records.
  static constexpr std::uint64_t kRoom = 100;
};

TEST_F(NvmeSpace, NeverExceedsItsCapacityAndKeepsTheRecent) {
  Open();
  for (std::uint64_t i = 0; i < 3 * kRoom; ++i) {
    ASSERT_EQ(Write(i), absl::OkStatus()) << i;
    ASSERT_LE(SegmentFileBytes(), options_.capacity_bytes);
    ASSERT_EQ(Check(i), absl::OkStatus()) << i;
  }
  const NvmeTierStats stats = tier_->Stats();
  EXPECT_GE(stats.tier.blocks, kRoom * 6 / 10);
  EXPECT_EQ(stats.evicted_blocks + stats.tier.blocks, 3 * kRoom);
  // Independent blocks leave in the order they were used.
  for (std::uint64_t i = 0; i < 3 * kRoom; ++i) {
    EXPECT_EQ(Resident(i), i >= 3 * kRoom - stats.tier.blocks) << i;
    if (Resident(i)) {
      EXPECT_EQ(Check(i), absl::OkStatus());
    }
  }
  // Blocks that die in the order they came need no rewriting.
  EXPECT_EQ(stats.bytes_written, stats.bytes_accepted);
}

TEST_F(NvmeSpace, EvictsChildrenBeforeParents) {
  Open();
  // Chains of 5; of each, the parent is written first and so is the least recently used.
  constexpr std::uint64_t kChains = 60;
  for (std::uint64_t c = 0; c < kChains; ++c) {
    for (std::uint64_t d = 0; d < 5; ++d) {
      const std::uint64_t i = c * 5 + d;
      ASSERT_EQ(Write(i, d == 0 ? std::nullopt : std::optional<std::uint64_t>(i - 1)), absl::OkStatus());
    }
    for (std::uint64_t i = 0; i <= c * 5 + 4; ++i) {
      if (i % 5 > 0 && Resident(i)) {
        ASSERT_TRUE(Resident(i - 1)) << i;
      }
    }
  }
}

TEST_F(NvmeSpace, KeepsPinnedAndTouchedBlocksByRewritingThem) {
  Open();
  std::set<std::uint64_t> pinned;
  for (std::uint64_t i = 0; i < 4 * kRoom; ++i) {
    ASSERT_EQ(Write(i), absl::OkStatus()) << i;
    if (i % 9 == 0 && i < 2 * kRoom) {
      ASSERT_EQ(tier_->SetPins(TestBlock::Key(i), 1), absl::OkStatus());
      pinned.insert(i);
    }
    const std::vector<BlockKey> favourite = {TestBlock::Key(5)};
    tier_->Touch(favourite, kTestExpiry);
    ASSERT_LE(SegmentFileBytes(), options_.capacity_bytes);
  }
  for (const std::uint64_t i : pinned) EXPECT_EQ(Check(i), absl::OkStatus()) << i;
  EXPECT_EQ(Check(5), absl::OkStatus());
  const NvmeTierStats stats = tier_->Stats();
  EXPECT_GT(stats.bytes_written, stats.bytes_accepted);
  EXPECT_EQ(stats.corrupt_blocks, 0u);
  Open();
  for (const std::uint64_t i : pinned) EXPECT_EQ(Check(i), absl::OkStatus()) << i;
}

TEST_F(NvmeSpace, IsFullWhenEverythingIsPinnedAndRecoversWhenNot) {
  Open();
  std::uint64_t stored = 0;
  absl::Status status;
  for (; stored < 2 * kRoom; ++stored) {
    status = Write(stored);
    if (!status.ok()) break;
    ASSERT_EQ(tier_->SetPins(TestBlock::Key(stored), 1), absl::OkStatus());
  }
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("unpin"));
  EXPECT_GE(stored, kRoom * 8 / 10);
  for (std::uint64_t i = 0; i < stored; ++i) EXPECT_EQ(Check(i), absl::OkStatus()) << i;
  EXPECT_TRUE(absl::IsResourceExhausted(Write(1000)));
  for (std::uint64_t i = 0; i < 20; ++i) ASSERT_EQ(tier_->SetPins(TestBlock::Key(i), 0), absl::OkStatus());
  EXPECT_EQ(Write(1000), absl::OkStatus());
  EXPECT_EQ(Check(1000), absl::OkStatus());
  for (std::uint64_t i = 20; i < stored; ++i) EXPECT_EQ(Check(i), absl::OkStatus()) << i;
}

TEST_F(NvmeSpace, DoesNotCarryCorruptionAlongWhenCleaning) {
  Open();
  for (std::uint64_t i = 0; i < 10; ++i) {
    ASSERT_EQ(Write(i), absl::OkStatus());
    if (i % 2 == 0) {
      ASSERT_EQ(tier_->SetPins(TestBlock::Key(i), 1), absl::OkStatus());
    }
  }
  FlipByte(SegmentFiles().at(0), 4 * TestBlock::RecordBytes() + 5000);  // block 4
  for (std::uint64_t i = 10; i < 3 * kRoom; ++i) ASSERT_EQ(Write(i), absl::OkStatus()) << i;
  for (const std::uint64_t i : {0, 2, 6, 8}) EXPECT_EQ(Check(i), absl::OkStatus()) << i;
  EXPECT_FALSE(Resident(4));
  EXPECT_EQ(tier_->Stats().corrupt_blocks, 1u);
}

// The file system's "not found" once passed for "no segment is free", and the writer made room for ever.
TEST_F(NvmeSpace, SaysSoWhenItsDirectoryIsGone) {
  Open();
  ASSERT_EQ(Write(0), absl::OkStatus());
  std::filesystem::remove_all(options_.directory + "/segments");
  absl::Status status;
  for (std::uint64_t i = 1; i <= kRoom && status.ok(); ++i) status = Write(i);
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("removed under the running store"));
}

TEST_F(NvmeSpace, ShrinksWhenOpenedWithLessCapacity) {
  Open();
  for (std::uint64_t i = 0; i < 85; ++i) ASSERT_EQ(Write(i), absl::OkStatus());
  ASSERT_EQ(tier_->SetPins(TestBlock::Key(0), 1), absl::OkStatus());
  options_.capacity_bytes = options_.segment_bytes * 8 - 4096 * 16;  // segments become a little smaller, too
  Open();
  EXPECT_LE(SegmentFileBytes(), options_.capacity_bytes);
  EXPECT_EQ(Check(0), absl::OkStatus());
  EXPECT_EQ(Check(84), absl::OkStatus());
  EXPECT_GT(tier_->Stats().tier.blocks, 30u);
  for (std::uint64_t i = 0; i < 85; ++i) {
    if (Resident(i)) {
      EXPECT_EQ(Check(i), absl::OkStatus()) << i;
    }
  }
  for (std::uint64_t i = 100; i < 300; ++i) {
    ASSERT_EQ(Write(i), absl::OkStatus()) << i;
    ASSERT_LE(SegmentFileBytes(), options_.capacity_bytes);
  }
  EXPECT_EQ(Check(0), absl::OkStatus());
  EXPECT_EQ(Check(299), absl::OkStatus());
}

TEST_F(NvmeSpace, EvictsInTheOrderOfUseAcrossReopen) {
  Open();
  for (std::uint64_t i = 0; i < 60; ++i) ASSERT_EQ(Write(i), absl::OkStatus());
  std::vector<BlockKey> first;
  for (std::uint64_t i = 0; i < 10; ++i) first.push_back(TestBlock::Key(i));
  tier_->Touch(first, kTestExpiry);
  Open();
  for (std::uint64_t i = 100; i < 150; ++i) ASSERT_EQ(Write(i), absl::OkStatus());
  for (std::uint64_t i = 0; i < 10; ++i) EXPECT_TRUE(Resident(i)) << i;
  EXPECT_FALSE(Resident(10));
  EXPECT_FALSE(Resident(11));
}

// Readers race with a writer that evicts, cleans and reuses all the time: a read is right or a miss.
TEST_F(NvmeSpace, ReadsAreRightOrMissesWhileSpaceIsReused) {
  Open();
  std::atomic<std::uint64_t> newest = 0;
  std::atomic<bool> stop = false;
  std::atomic<std::uint64_t> hits = 0;
  std::vector<std::thread> readers;
  for (int r = 0; r < 3; ++r) {
    readers.emplace_back([&, r] {
      std::mt19937_64 random(static_cast<std::uint64_t>(r));
      while (!stop) {
        const std::uint64_t last = newest;
        const std::uint64_t i = last - std::min<std::uint64_t>(last, random() % 100);
        const absl::Status status = CheckBlock(*tier_, i);
        if (status.ok()) ++hits;
        EXPECT_TRUE(status.ok() || absl::IsNotFound(status)) << i << status;
      }
    });
  }
  std::mt19937_64 random(9);
  for (std::uint64_t i = 1; i < 1500; ++i) {
    EXPECT_EQ(Write(i), absl::OkStatus()) << i;
    newest = i;
    const std::vector<BlockKey> touched = {TestBlock::Key(i - random() % std::min<std::uint64_t>(i, 90))};
    tier_->Touch(touched, kTestExpiry);
    if (i % 50 == 0) {
      EXPECT_EQ(tier_->Drop(touched).status(), absl::OkStatus());
    }
  }
  stop = true;
  for (std::thread& t : readers) t.join();
  EXPECT_GT(hits, 0u);
  EXPECT_EQ(tier_->Stats().corrupt_blocks, 0u);
  EXPECT_GT(tier_->Stats().bytes_written, tier_->Stats().bytes_accepted);
}

// Random operations against a model, with reopenings; the seed is printed by the failing assertion.
TEST_F(NvmeSpace, AgreesWithAModelUnderRandomOperations) {
  for (const std::uint64_t seed : {1, 2, 3}) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    Close();
    std::filesystem::remove_all(options_.directory);
    Open();
    std::set<std::uint64_t> dropped;
    std::set<std::uint64_t> pinned;
    for (int step = 0; step < 600; ++step) {
      const std::uint64_t i = random() % 150;
      switch (random() % 16) {
        case 0:
          ASSERT_EQ(tier_->Drop(std::vector<BlockKey>{TestBlock::Key(i)}).status(), absl::OkStatus());
          dropped.insert(i);
          pinned.erase(i);
          break;
        case 1:
          if (pinned.size() < 15 && tier_->SetPins(TestBlock::Key(i), 1).ok()) pinned.insert(i);
          break;
        case 2:
          if (tier_->SetPins(TestBlock::Key(i), 0).ok()) pinned.erase(i);
          break;
        case 3:
          if (step % 5 == 0) Open();
          break;
        default: {
          const absl::Status status = Write(i, i % 10 == 0 ? std::nullopt : std::optional<std::uint64_t>(i - 1));
          ASSERT_TRUE(status.ok() || absl::IsAlreadyExists(status)) << status;
          dropped.erase(i);
        }
      }
      ASSERT_LE(SegmentFileBytes(), options_.capacity_bytes);
      for (const std::uint64_t d : dropped) ASSERT_FALSE(Resident(d)) << step;
      for (const std::uint64_t p : pinned) ASSERT_TRUE(Resident(p)) << step;
      if (step % 20 == 0) {
        for (std::uint64_t k = 0; k < 150; ++k) {
          const absl::Status status = Check(k, k % 10 == 0 ? std::nullopt : std::optional<std::uint64_t>(k - 1));
          ASSERT_TRUE(status.ok() || absl::IsNotFound(status)) << k << status;
        }
      }
    }
    EXPECT_EQ(tier_->Stats().corrupt_blocks, 0u);
  }
}

}  // namespace
}  // namespace kvist
