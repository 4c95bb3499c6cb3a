#include "cachestore/index/resident_summary.h"

#include <algorithm>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace kvist {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr BlockKey Key(std::uint64_t i) { return {i, 1}; }

BlockEntry Entry(std::uint64_t parent, std::int64_t expires = 100) {
  BlockEntry e;
  e.ns = {9, 9};
  e.parent = Key(parent);
  e.record_bytes = 8192;
  e.expires_unix_s = expires;
  return e;
}

TEST(ResidentSummary, RestoresTheOrderOfUse) {
  for (const EvictionKind kind : {EvictionKind::kLru, EvictionKind::kReuseValue}) {
    ResidentSummary summary(kind);
    for (const std::uint64_t i : {3, 1, 2}) {
      BlockEntry entry = Entry(0);
      entry.parent = entry.ns;
      entry.used = 10 * i;
      EXPECT_TRUE(summary.Restore(Key(i), entry));
    }
    EXPECT_EQ(summary.Find(Key(2))->used, 20u);
    EXPECT_EQ(summary.Victim(), Key(1));
    EXPECT_EQ(summary.NextUse(), 31u);
    summary.Touch(Key(1), 200);
    EXPECT_EQ(summary.Victim(), Key(2));
    EXPECT_EQ(summary.Find(Key(1))->used, 31u);
  }
}

TEST(ResidentSummary, GivesBackEntriesAsTheyCame) {
  ResidentSummary summary(EvictionKind::kLru);
  BlockEntry entry = Entry(7, 1234567890);
  entry.extent = {.segment = 12345, .generation = std::uint64_t{1} << 40, .offset = 77 * 4096};
  entry.pins = 3;
  entry.used = 9;
  ASSERT_TRUE(summary.Restore(Key(1), entry));
  EXPECT_EQ(summary.Find(Key(1)), entry);
  entry.extent.offset = 65535 * 4096;  // the last page of a segment of 256 MiB
  ASSERT_TRUE(summary.Relocate(Key(1), entry.extent));
  EXPECT_EQ(summary.Find(Key(1)), entry);
  EXPECT_EQ(summary.Erase(Key(1)), entry);
}

TEST(ResidentSummary, CountsPayloadWhereItKnowsTheNamespace) {
  ResidentSummary summary;
  EXPECT_TRUE(summary.Insert(Key(1), Entry(0)));
  EXPECT_EQ(summary.payload_bytes(), 8192u);
  summary.SetNamespace({9, 9}, 5000, 64);
  EXPECT_FALSE(summary.Insert(Key(1), Entry(5)));
  EXPECT_EQ(summary.payload_bytes(), 5000u);
  EXPECT_TRUE(summary.Erase(Key(1)));
  EXPECT_FALSE(summary.Erase(Key(1)));
  EXPECT_EQ(summary.payload_bytes(), 0u);
}

TEST(ResidentSummary, PinnedBlocksAreNoVictims) {
  ResidentSummary summary;
  summary.Insert(Key(1), Entry(0));
  summary.Insert(Key(2), Entry(0));
  summary.SetPins(Key(1), 2);
  EXPECT_EQ(summary.Victim(), Key(2));
  summary.SetPins(Key(2), 1);
  EXPECT_EQ(summary.Victim(), std::nullopt);
  summary.SetPins(Key(1), 1);
  EXPECT_EQ(summary.Victim(), std::nullopt);
  summary.SetPins(Key(1), 0);
  EXPECT_EQ(summary.Victim(), Key(1));
}

TEST(ResidentSummary, OnlyUnpinnedLeavesExpire) {
  ResidentSummary summary;
  summary.Insert(Key(1), Entry(0, 10));
  summary.Insert(Key(2), Entry(1, 10));
  EXPECT_FALSE(summary.IsExpiredLeaf(Key(2), 10));
  EXPECT_TRUE(summary.IsExpiredLeaf(Key(2), 11));
  EXPECT_FALSE(summary.IsExpiredLeaf(Key(1), 11));
  summary.Erase(Key(2));
  EXPECT_TRUE(summary.IsExpiredLeaf(Key(1), 11));
  summary.SetPins(Key(1), 1);
  EXPECT_FALSE(summary.IsExpiredLeaf(Key(1), 11));
  EXPECT_FALSE(summary.IsExpiredLeaf(Key(8), 11));
}

TEST(ResidentSummary, KnowsWhenNothingCanHaveExpired) {
  ResidentSummary summary;
  EXPECT_TRUE(summary.MayHaveExpired(1));  // no pass yet
  summary.SetEarliestExpiry(100);
  EXPECT_FALSE(summary.MayHaveExpired(100));
  EXPECT_TRUE(summary.MayHaveExpired(101));
  summary.Insert(Key(1), Entry(0, 50));
  EXPECT_TRUE(summary.MayHaveExpired(51));
  summary.SetPins(Key(1), 1);
  summary.SetEarliestExpiry(100);  // a pass leaves pinned blocks out
  summary.SetPins(Key(1), 0);
  EXPECT_TRUE(summary.MayHaveExpired(51));
}

// With what the segments keep for each of their blocks (4 bytes), below 64; beside what the policy learns from, which
// is 4 MiB however many there are.
TEST(ResidentSummary, TakesLittleMemoryABlock) {
  constexpr std::uint64_t kBlocks = 1'000'000;
  constexpr std::uint64_t kFixed = std::uint64_t{4} << 20;
  for (const EvictionKind kind : {EvictionKind::kS3Fifo, EvictionKind::kReuseValue, EvictionKind::kReuseCost}) {
    ResidentSummary summary(kind);
    std::uint64_t worst = 0;
    for (std::uint64_t i = 0; i < kBlocks; ++i) {
      BlockEntry entry = Entry(0);
      entry.parent = i % 40 == 0 ? entry.ns : BlockKey{i - 1, i - 1};  // chains of 40
      entry.extent = {.segment = i / 1000, .generation = 1, .offset = i % 1000 * 8192};
      summary.Insert({i, i}, entry);
      if (i >= 200'000 && i % 1000 == 0) worst = std::max(worst, (summary.MemoryBytes() - kFixed) / (i + 1));
    }
    EXPECT_LE(worst, 60u) << EvictionKindName(kind);
  }
}

TEST(ResidentSummary, GivesOutDirtyEntriesOnceAsTheyAreNow) {
  ResidentSummary summary;
  for (std::uint64_t i = 0; i < 5; ++i) summary.Insert(Key(i + 1), Entry(0));
  EXPECT_THAT(summary.TakeDirty(10), IsEmpty());
  summary.Touch(Key(1), 200);
  summary.Touch(Key(1), 300);
  summary.Touch(Key(2), 400);
  summary.Erase(Key(2));
  const auto items = summary.TakeDirty(10);
  ASSERT_EQ(items.size(), 1u);
  EXPECT_EQ(items[0].second.expires_unix_s, 300);
  EXPECT_THAT(summary.TakeDirty(10), IsEmpty());
  summary.MarkDirty(items);
  EXPECT_EQ(summary.TakeDirty(0).size(), 0u);
  EXPECT_EQ(summary.TakeDirty(1).size(), 1u);
}

TEST(ResidentSummary, FindsSubtrees) {
  ResidentSummary summary;
  summary.Insert(Key(1), Entry(0));
  summary.Insert(Key(2), Entry(1));
  summary.Insert(Key(3), Entry(2));
  summary.Insert(Key(4), Entry(0));
  EXPECT_THAT(summary.Subtree(Key(1)), ElementsAre(Key(3), Key(2), Key(1)));
  EXPECT_THAT(summary.Subtree(Key(4)), ElementsAre(Key(4)));
  EXPECT_THAT(summary.Subtree(Key(8)), IsEmpty());
}

}  // namespace
}  // namespace kvist
