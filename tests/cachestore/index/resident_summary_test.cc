#include "cachestore/index/resident_summary.h"

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

TEST(ResidentSummary, LoadsInTheOrderOfUse) {
  ResidentSummary summary;
  std::vector<ResidentSummary::Item> items;
  for (const std::uint64_t i : {3, 1, 2}) {
    items.emplace_back(Key(i), Entry(0));
    items.back().second.used = 10 * i;
  }
  summary.Load(items);
  EXPECT_EQ(summary.Victim(), Key(1));
  EXPECT_EQ(summary.NextUse(), 31u);
  summary.Touch(Key(1), 200);
  EXPECT_EQ(summary.Victim(), Key(2));
  EXPECT_EQ(summary.Find(Key(1))->used, 32u);
}

TEST(ResidentSummary, CountsPayloadWhereItKnowsTheNamespace) {
  ResidentSummary summary;
  summary.SetPayloadBytes({9, 9}, 5000);
  EXPECT_TRUE(summary.Insert(Key(1), Entry(0)));
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

TEST(ResidentSummary, ExpiresChildrenBeforeParentsAndNotWithoutThem) {
  ResidentSummary summary;
  summary.Insert(Key(1), Entry(0, 10));
  summary.Insert(Key(2), Entry(1, 10));
  summary.Insert(Key(3), Entry(2, 10));
  summary.Insert(Key(4), Entry(0, 10));
  summary.Insert(Key(5), Entry(4, 50));
  EXPECT_THAT(summary.Expired(10), IsEmpty());
  EXPECT_THAT(summary.Expired(11), ElementsAre(Key(3), Key(2), Key(1)));
  EXPECT_THAT(summary.Expired(51).size(), 5u);
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
  EXPECT_EQ(summary.dirty(), 0u);
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
