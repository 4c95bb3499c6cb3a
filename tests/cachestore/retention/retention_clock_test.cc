#include "cachestore/retention/retention_clock.h"

#include "cachestore/io/clock.h"
#include "gtest/gtest.h"

namespace kvist {
namespace {

class RetentionClockTest : public testing::Test {
 protected:
  absl::Time Now() { return time_.Advance(clock_.Wall(), clock_.Monotonic()); }

  FakeClock clock_;
  const absl::Time start_ = clock_.Wall();
  RetentionClock time_{clock_.Wall(), clock_.Monotonic(), absl::InfinitePast()};
};

TEST_F(RetentionClockTest, FollowsTheWallClock) {
  EXPECT_EQ(Now(), start_);
  clock_.Advance(absl::Hours(100));
  EXPECT_EQ(Now(), start_ + absl::Hours(100));
  clock_.JumpWall(absl::Seconds(2));  // as time synchronisation does
  EXPECT_EQ(Now(), start_ + absl::Hours(100) + absl::Seconds(2));
}

TEST_F(RetentionClockTest, NeverGoesBack) {
  clock_.Advance(absl::Hours(1));
  Now();
  clock_.JumpWall(-absl::Seconds(2));
  EXPECT_EQ(Now(), start_ + absl::Hours(1));
  clock_.JumpWall(-absl::Hours(24 * 365));
  EXPECT_EQ(Now(), start_ + absl::Hours(1));
  clock_.Advance(absl::Minutes(10));
  EXPECT_EQ(Now(), start_ + absl::Hours(1) + absl::Minutes(10));
}

TEST_F(RetentionClockTest, ALeapAheadIsFollowedOnlyOnceConfirmed) {
  clock_.JumpWall(absl::Hours(5));
  EXPECT_EQ(Now(), start_);
  EXPECT_TRUE(time_.doubtful());
  clock_.Advance(RetentionClock::kConfirmAfter - absl::Seconds(1));
  EXPECT_EQ(Now(), start_ + RetentionClock::kConfirmAfter - absl::Seconds(1));
  clock_.Advance(absl::Seconds(1));
  EXPECT_EQ(Now(), start_ + absl::Hours(5) + RetentionClock::kConfirmAfter);
  EXPECT_FALSE(time_.doubtful());
}

TEST_F(RetentionClockTest, ALeapTakenBackLeavesNoTrace) {
  clock_.JumpWall(absl::Hours(24 * 365 * 50));
  Now();
  clock_.Advance(absl::Minutes(30));
  clock_.JumpWall(-absl::Hours(24 * 365 * 50));
  EXPECT_EQ(Now(), start_ + absl::Minutes(30));
  EXPECT_FALSE(time_.doubtful());
  clock_.Advance(absl::Hours(2));
  EXPECT_EQ(Now(), start_ + absl::Minutes(150));
}

TEST(RetentionClock, AfterARestartAPauseIsBelieved) {
  const absl::Time last = absl::FromUnixSeconds(1'800'000'000);
  RetentionClock time(last + absl::Hours(24 * 20), absl::ZeroDuration(), last);
  EXPECT_EQ(time.Advance(last + absl::Hours(24 * 20), absl::ZeroDuration()), last + absl::Hours(24 * 20));
}

TEST(RetentionClock, AfterARestartAClockFarAheadIsNotBelievedAtOnce) {
  const absl::Time last = absl::FromUnixSeconds(1'800'000'000);
  const absl::Time wall = last + absl::Hours(24 * 365 * 10);
  RetentionClock time(wall, absl::ZeroDuration(), last);
  EXPECT_EQ(time.Advance(wall, absl::ZeroDuration()), last);
  EXPECT_EQ(time.Advance(wall + absl::Hours(1), absl::Hours(1)), wall + absl::Hours(1));
}

TEST(RetentionClock, AfterARestartAClockThatWentBackGoesOnFromTheNewestUse) {
  const absl::Time last = absl::FromUnixSeconds(1'800'000'000);
  const absl::Time wall = last - absl::Hours(24);
  RetentionClock time(wall, absl::ZeroDuration(), last);
  EXPECT_EQ(time.Advance(wall + absl::Minutes(1), absl::Minutes(1)), last + absl::Minutes(1));
}

}  // namespace
}  // namespace kvist
