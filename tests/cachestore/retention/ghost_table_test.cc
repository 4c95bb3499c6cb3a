#include "cachestore/retention/ghost_table.h"

#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace kvist {
namespace {

using ::testing::Optional;

TEST(GhostTable, RemembersUsesOnce) {
  GhostTable ghosts(64);
  ghosts.Add(0x1234'5678'9abc'def0, 2);
  EXPECT_THAT(ghosts.Take(0x1234'5678'9abc'def0), Optional(2u));
  EXPECT_EQ(ghosts.Take(0x1234'5678'9abc'def0), std::nullopt);
}

TEST(GhostTable, CountsNoMoreUsesThanThree) {
  GhostTable ghosts(64);
  ghosts.Add(~0ull, 200);
  EXPECT_THAT(ghosts.Take(~0ull), Optional(3u));
}

TEST(GhostTable, HashOfZeroBitsIsRemembered) {
  GhostTable ghosts(64);
  EXPECT_EQ(ghosts.Take(0), std::nullopt);
  ghosts.Add(0, 0);
  EXPECT_THAT(ghosts.Take(0), Optional(0u));
}

TEST(GhostTable, ForgetsTheOldestWhenFull) {
  GhostTable ghosts(8);  // one bucket
  ASSERT_EQ(ghosts.capacity(), 8u);
  for (std::uint64_t n = 1; n <= 9; ++n) ghosts.Add(n << 56, 1);
  EXPECT_EQ(ghosts.Take(1ull << 56), std::nullopt);
  for (std::uint64_t n = 2; n <= 9; ++n) EXPECT_THAT(ghosts.Take(n << 56), Optional(1u)) << n;
}

TEST(GhostTable, GrowsWithoutForgetting) {
  GhostTable ghosts(64);
  std::mt19937_64 random(1);
  for (int n = 0; n < 32; ++n) ghosts.Add(random(), 1);
  std::mt19937_64 fresh(1);
  ghosts.GrowTo(1000);
  EXPECT_GE(ghosts.capacity(), 1000u);
  int known = 0;
  for (int n = 0; n < 32; ++n) known += ghosts.Take(fresh()).has_value() ? 1 : 0;
  EXPECT_GE(known, 30);  // a bucket may have overflowed before
}

TEST(GhostTable, SeldomTakesAStrangerForAGhost) {
  GhostTable ghosts(1 << 14);
  std::mt19937_64 random(1);
  for (int n = 0; n < 1 << 14; ++n) ghosts.Add(random(), 1);
  int mistaken = 0;
  for (int n = 0; n < 100'000; ++n) mistaken += ghosts.Take(random()).has_value() ? 1 : 0;
  EXPECT_LT(mistaken, 100);  // about 8 / 2^14 of 100,000 are expected
}

}  // namespace
}  // namespace kvist
