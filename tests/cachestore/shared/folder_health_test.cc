#include "cachestore/shared/folder_health.h"

#include "gtest/gtest.h"

namespace kvist {
namespace {

constexpr FolderHealth::Options kOptions{
    .timeouts_to_open = 3, .retry_first = absl::Seconds(1), .retry_most = absl::Seconds(3)};

TEST(FolderHealth, GivesUpAfterSilenceInARowOnly) {
  FolderHealth health(kOptions);
  const absl::Duration now = absl::Seconds(100);
  for (int round = 0; round < 3; ++round) {
    EXPECT_FALSE(health.OnTimeout(now));
    EXPECT_FALSE(health.OnTimeout(now));
    EXPECT_FALSE(health.OnAnswer());
  }
  EXPECT_TRUE(health.Admit(now));
  EXPECT_FALSE(health.OnTimeout(now));
  EXPECT_FALSE(health.OnTimeout(now));
  EXPECT_TRUE(health.OnTimeout(now)) << "news, once";
  EXPECT_FALSE(health.OnTimeout(now));
  EXPECT_TRUE(health.given_up());
  EXPECT_FALSE(health.Admit(now));
}

TEST(FolderHealth, TriesOneAtATimeAndLessAndLessOften) {
  FolderHealth health(kOptions);
  absl::Duration now = absl::Seconds(100);
  for (int i = 0; i < 3; ++i) health.OnTimeout(now);
  for (const int wait : {1, 2, 3, 3}) {  // doubled, up to the most
    now += absl::Seconds(wait) - absl::Milliseconds(1);
    EXPECT_FALSE(health.Admit(now)) << wait;
    now += absl::Milliseconds(1);
    EXPECT_TRUE(health.Admit(now)) << wait;
    EXPECT_FALSE(health.Admit(now)) << "one trial";
    health.OnTimeout(now);
  }
  EXPECT_TRUE(health.OnAnswer()) << "a late answer counts";
  EXPECT_TRUE(health.Admit(now));
  for (int i = 0; i < 3; ++i) health.OnTimeout(now);
  EXPECT_TRUE(health.Admit(now + absl::Seconds(1))) << "the first wait again";
}

}  // namespace
}  // namespace kvist
