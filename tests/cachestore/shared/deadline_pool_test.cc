#include "cachestore/shared/deadline_pool.h"

#include <atomic>
#include <optional>
#include <thread>

#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/notification.h"
#include "cachestore/await.h"
#include "gtest/gtest.h"

namespace kvist {
namespace {

constexpr absl::Duration kSoon = absl::Milliseconds(20);

struct Stuck {  // shared with the threads in it
  absl::Notification released;
  std::atomic<int> inside = 0;
};

DeadlinePool::Options Options() {
  DeadlinePool::Options options;
  options.name = "pool";
  options.threads = 2;
  options.close_timeout = kSoon;
  options.health = {.timeouts_to_open = 100, .retry_first = absl::ZeroDuration(), .retry_most = absl::ZeroDuration()};
  return options;
}

absl::Status RunNow(DeadlinePool& pool, DeadlinePool::Work work, absl::Duration timeout = absl::InfiniteDuration()) {
  return AwaitStatus([&](DoneStatus done) { pool.Run(Urgency::kReader, timeout, std::move(work), std::move(done)); });
}

DeadlinePool::Work StuckWork(const std::shared_ptr<Stuck>& stuck) {
  return [stuck] {
    ++stuck->inside;
    stuck->released.WaitForNotification();
    --stuck->inside;
    return absl::OkStatus();
  };
}

TEST(DeadlinePool, YieldsWhatTheWorkReturned) {
  DeadlinePool pool(Options());
  EXPECT_TRUE(RunNow(pool, [] { return absl::OkStatus(); }).ok());
  EXPECT_EQ(RunNow(pool, [] { return absl::NotFoundError("x"); }), absl::NotFoundError("x"));
}

TEST(DeadlinePool, AStuckCallTimesOutAndKeepsWhatItOwns) {
  auto stuck = std::make_shared<Stuck>();
  auto owned = std::make_shared<int>(1);
  const std::weak_ptr<int> watch = owned;
  std::optional<DeadlinePool> pool(Options());
  const absl::Status status = RunNow(
      *pool, [work = StuckWork(stuck), owned = std::move(owned)]() mutable { return work(); }, kSoon);
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_EQ(pool->counters().timeouts, 1u);
  EXPECT_FALSE(watch.expired()) << "the call may still use it";
  EXPECT_TRUE(RunNow(*pool, [] { return absl::OkStatus(); }).ok()) << "the other thread goes on";
  stuck->released.Notify();
  pool.reset();
  while (!watch.expired()) std::this_thread::yield();  // it is given back
}

TEST(DeadlinePool, WaitingCallsTimeOutToo) {
  auto stuck = std::make_shared<Stuck>();
  DeadlinePool pool(Options());
  absl::BlockingCounter done(6);
  std::atomic<int> late = 0;
  for (int i = 0; i < 6; ++i) {
    pool.Run(Urgency::kReader, kSoon, StuckWork(stuck), [&](const absl::Status& status) {
      late += absl::IsDeadlineExceeded(status) ? 1 : 0;
      done.DecrementCount();
    });
  }
  done.Wait();
  EXPECT_EQ(late, 6);
  EXPECT_LE(pool.counters().stuck, 2u) << "no more threads than there are";
  stuck->released.Notify();
  EXPECT_TRUE(RunNow(pool, [] { return absl::OkStatus(); }).ok());
  while (pool.counters().stuck > 0) std::this_thread::yield();  // all threads come back
}

TEST(DeadlinePool, FailsAtOnceWhileItHasGivenUpAndTriesAgain) {
  auto stuck = std::make_shared<Stuck>();
  DeadlinePool::Options options = Options();
  options.health = {
      .timeouts_to_open = 2, .retry_first = absl::InfiniteDuration(), .retry_most = absl::InfiniteDuration()};
  DeadlinePool pool(options);
  EXPECT_TRUE(absl::IsDeadlineExceeded(RunNow(pool, StuckWork(stuck), kSoon)));
  EXPECT_FALSE(pool.counters().given_up);
  EXPECT_TRUE(absl::IsDeadlineExceeded(RunNow(pool, StuckWork(stuck), kSoon)));
  EXPECT_TRUE(pool.counters().given_up);
  bool ran = false;
  EXPECT_TRUE(absl::IsUnavailable(RunNow(pool, [&] {
    ran = true;
    return absl::OkStatus();
  })));
  EXPECT_FALSE(ran);
  // The late answers say that it is back: then calls are admitted again.
  stuck->released.Notify();
  while (pool.counters().given_up) std::this_thread::yield();
  EXPECT_TRUE(RunNow(pool, [] { return absl::OkStatus(); }).ok());
}

TEST(DeadlinePool, BackgroundWorkLeavesThreadsToReaders) {
  auto stuck = std::make_shared<Stuck>();
  DeadlinePool pool(Options());
  absl::BlockingCounter done(4);
  for (int i = 0; i < 4; ++i) {
    pool.Run(Urgency::kBackground, absl::InfiniteDuration(), StuckWork(stuck),
             [&](const absl::Status&) { done.DecrementCount(); });
  }
  EXPECT_TRUE(RunNow(pool, [] { return absl::OkStatus(); }).ok());
  EXPECT_LE(stuck->inside, 1);
  stuck->released.Notify();
  done.Wait();
}

TEST(DeadlinePool, RefusesMoreThanItsQueueHolds) {
  auto stuck = std::make_shared<Stuck>();
  DeadlinePool::Options options = Options();
  options.queue_limit = 3;
  DeadlinePool pool(options);
  std::atomic<int> refused = 0;
  absl::BlockingCounter done(10);
  for (int i = 0; i < 10; ++i) {
    pool.Run(Urgency::kReader, absl::InfiniteDuration(), StuckWork(stuck), [&](const absl::Status& status) {
      refused += absl::IsResourceExhausted(status) ? 1 : 0;
      done.DecrementCount();
    });
  }
  EXPECT_GE(refused, 10 - 3 - 2);
  stuck->released.Notify();
  done.Wait();
}

TEST(DeadlinePool, ClosesWithoutWaitingForStuckCalls) {
  auto stuck = std::make_shared<Stuck>();
  std::atomic<int> cancelled = 0;
  {
    DeadlinePool pool(Options());
    for (int i = 0; i < 6; ++i) {
      pool.Run(Urgency::kReader, absl::InfiniteDuration(), StuckWork(stuck),
               [&](const absl::Status& status) { cancelled += absl::IsCancelled(status) ? 1 : 0; });
    }
    while (stuck->inside < 2) std::this_thread::yield();
  }
  EXPECT_EQ(cancelled, 6) << "all completed before the pool went";
  EXPECT_EQ(stuck->inside, 2);
  stuck->released.Notify();
  while (stuck->inside > 0) std::this_thread::yield();
}

}  // namespace
}  // namespace kvist
