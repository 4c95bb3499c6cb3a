#include "cachestore/retention/reuse_model.h"

#include "gtest/gtest.h"

namespace kvist {
namespace {

constexpr std::size_t kResident = 1000;

// Feeds uses at one per tick until the model has learnt from them a few times.
class ReuseModelTest : public ::testing::Test {
 protected:
  void Use(std::uint64_t hash, ReuseModel::Class kind) {
    model_.Used(hash, kind, now_);
    for (int i = 0; i < 40; ++i) model_.Step(now_, kResident);  // 40 blocks a chain, say
  }

  ReuseModel model_;
  ReuseModel::Time now_ = 0;
};

TEST_F(ReuseModelTest, BeginsAsLru) {
  for (int kind = 0; kind < ReuseModel::kClasses; ++kind) {
    for (ReuseModel::Time age = 2; age < 1u << 20; age = age * 3 / 2 + 1) {  // twice as old, less likely
      EXPECT_LT(model_.Value(static_cast<ReuseModel::Class>(kind), age * 2),
                model_.Value(static_cast<ReuseModel::Class>(kind), age))
          << age;
      EXPECT_EQ(model_.Value(static_cast<ReuseModel::Class>(kind), age), model_.Value(0, age));
    }
  }
}

TEST_F(ReuseModelTest, ClassThatComesBackIsWorthMore) {
  // Class 1 is used again 20 ticks later, class 0 never.
  for (; now_ < 20'000; ++now_) {
    Use(std::uint64_t{1} << 40 | now_, 0);
    Use(now_ % 20, 1);
  }
  for (const ReuseModel::Time age : {0, 1, 5, 10, 15}) EXPECT_GT(model_.Value(1, age), 3 * model_.Value(0, age)) << age;
}

TEST_F(ReuseModelTest, OverdueIsWorthLessThanDue) {
  // Each used every 100 ticks, but one in eight never again.
  for (; now_ < 40'000; ++now_) Use(now_ % 8 == 7 ? std::uint64_t{1} << 40 | now_ : now_ % 100, 1);
  EXPECT_GT(model_.Value(1, 90), model_.Value(1, 200));
  EXPECT_GT(model_.Value(1, 90), model_.Value(1, 10));  // the nearer the better: what LRU can't see
}

TEST_F(ReuseModelTest, ForgetsWhatNoLongerHolds) {
  for (; now_ < 20'000; ++now_) Use(now_ % 20, 1);
  const float before = model_.Value(1, 5);
  for (; now_ < 60'000; ++now_) Use(std::uint64_t{1} << 40 | now_, 1);
  EXPECT_LT(model_.Value(1, 5), before / 2);
}

TEST_F(ReuseModelTest, ReclassifiedIntervalCountsForItsNewClass) {
  for (; now_ < 20'000; ++now_) {
    Use(now_ % 20, 0);
    model_.Reclassify(now_ % 20, 1);
  }
  EXPECT_GT(model_.Value(1, 5), model_.Value(0, 5));
}

TEST_F(ReuseModelTest, AgesSurviveTheClockWrappingAround) {
  now_ = ~ReuseModel::Time{0} - 10'000;
  for (int i = 0; i < 20'000; ++i, ++now_) Use(now_ % 128, 1);
  EXPECT_GT(model_.Value(1, 100), 5 * model_.Value(1, 1000));
}

TEST_F(ReuseModelTest, FollowsABoundedNumber) {
  for (std::uint64_t i = 0; i < 400'000; ++i, ++now_) {
    model_.Used(i * 0x9E3779B97F4A7C15ull, 0, now_);
    model_.Step(now_, 10'000'000);
  }
  // A share of them, and what came since it last learnt (every 2.5 million steps at this size, so nothing is cut yet).
  for (std::uint64_t i = 0; i < 2'500'000; ++i) model_.Step(now_, 10'000'000);
  EXPECT_LE(model_.followed(), std::size_t{1} << 17);
  const std::size_t followed = model_.followed();
  for (std::uint64_t i = 0; i < 40'000; ++i) model_.Used(~i * 0x9E3779B97F4A7C15ull, 0, now_);
  EXPECT_LT(model_.followed() - followed, 1000u);
}

TEST(ReuseModel, FollowsFewOfALongChain) {
  int followed = 0;
  for (std::uint32_t depth = 0; depth < 2048; ++depth) followed += ReuseModel::Follows(depth) ? 1 : 0;
  EXPECT_EQ(followed, 22);  // 1, 2, 4, ... 2048 and 3, 6, ... 1536
  EXPECT_TRUE(ReuseModel::Follows(0));
  EXPECT_FALSE(ReuseModel::Follows(4));
  EXPECT_FALSE(ReuseModel::Follows(~std::uint32_t{0} - 1));
}

}  // namespace
}  // namespace kvist
