#include "cachestore/retention/s3_fifo_policy.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace kvist {
namespace {

using ::testing::Optional;

BlockKey Key(std::uint64_t n) { return {n, 0}; }

TEST(S3FifoPolicy, FirstInIsFirstOutWhateverWasUsedOnceSince) {
  S3FifoPolicy s3(0);
  for (std::uint64_t n = 1; n <= 3; ++n) s3.Insert(Key(n), {});
  s3.Touch(Key(1));
  EXPECT_THAT(s3.Victim(), Optional(Key(1)));
}

TEST(S3FifoPolicy, UsedTwiceGoesOnToTheMainQueue) {
  S3FifoPolicy s3(0);
  for (std::uint64_t n = 1; n <= 3; ++n) s3.Insert(Key(n), {});
  s3.Touch(Key(1));
  s3.Touch(Key(1));
  for (const std::uint64_t n : {2, 3, 1}) {
    ASSERT_THAT(s3.Victim(), Optional(Key(n)));
    s3.Erase(Key(n));
  }
}

TEST(S3FifoPolicy, ReturningGhostOutlivesAScan) {
  S3FifoPolicy s3(0);
  s3.Insert(Key(1), {});
  s3.Erase(Key(1));
  s3.Insert(Key(1), {});
  for (std::uint64_t n = 2; n < 200; ++n) {
    s3.Insert(Key(n), {});
    if (s3.size() <= 20) continue;
    ASSERT_NE(s3.Victim(), Key(1)) << n;
    s3.Erase(*s3.Victim());
  }
}

TEST(S3FifoPolicy, EachUseInTheMainQueueBuysOneRound) {
  S3FifoPolicy s3(0);
  for (const std::uint64_t n : {1, 2}) {  // ghosts, so that both enter the main queue
    s3.Insert(Key(n), {});
    s3.Erase(Key(n));
    s3.Insert(Key(n), {});
  }
  s3.Touch(Key(1));
  EXPECT_THAT(s3.Victim(), Optional(Key(2)));
  EXPECT_THAT(s3.Victim(), Optional(Key(2)));  // asking changes nothing further
  s3.Erase(Key(2));
  EXPECT_THAT(s3.Victim(), Optional(Key(1)));
}

TEST(S3FifoPolicy, ParentIsNextOnceItsChildIsGone) {
  S3FifoPolicy s3(0);
  s3.Insert(Key(1), {});
  s3.Insert(Key(2), {.parent = Key(1), .depth = 1});
  s3.Insert(Key(3), {});
  ASSERT_THAT(s3.Victim(), Optional(Key(2)));
  s3.Erase(Key(2));
  EXPECT_THAT(s3.Victim(), Optional(Key(1)));
}

}  // namespace
}  // namespace kvist
