#include "kernels/cpu/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace kvist::kernels {
namespace {

TEST(ThreadPool, RunsEveryWorkerOnceEachTime) {
  for (const std::size_t threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    ASSERT_EQ(pool.size(), threads);
    std::vector<std::atomic<int>> calls(threads);
    for (int i = 0; i < 300; ++i) pool.Run([&](std::size_t worker) { ++calls[worker]; });
    for (const std::atomic<int>& count : calls) EXPECT_EQ(count.load(), 300);
  }
}

TEST(ThreadPool, WorkIsSeenByTheCallerAfterRun) {
  ThreadPool pool(3);
  std::vector<int> plain(3, 0);  // no atomics: Run itself orders the accesses
  for (int i = 0; i < 200; ++i) {
    pool.Run([&](std::size_t worker) { ++plain[worker]; });
    for (int& count : plain) ASSERT_EQ(count, i + 1);
  }
}

TEST(ThreadPool, WorkersThatFellAsleepWakeUp) {
  ThreadPool pool(2);
  int calls = 0;
  pool.Run([&](std::size_t worker) {
    if (worker == 1) ++calls;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // well past the spinning
  pool.Run([&](std::size_t worker) {
    if (worker == 1) ++calls;
  });
  EXPECT_EQ(calls, 2);
}

TEST(ThreadPool, SharesCoverEverythingOnce) {
  for (const std::size_t threads : {1, 2, 3, 7}) {
    const ThreadPool pool(threads);
    for (const std::size_t total : {0, 1, 31, 32, 33, 576, 1000}) {
      std::size_t at = 0;
      for (std::size_t worker = 0; worker < threads; ++worker) {
        const RowRange share = pool.Share(total, 32, worker);
        EXPECT_EQ(share.begin, at);
        EXPECT_LE(share.begin, share.end);
        if (share.end != total) {
          EXPECT_EQ(share.end % 32, 0u);
        }
        at = share.end;
      }
      EXPECT_EQ(at, total);
    }
  }
}

TEST(ThreadPool, CountIsBoundedByTheMachineUnlessGiven) {
  EXPECT_EQ(ThreadPool(0).size(), std::min(ThreadPool::AvailableCores(), ThreadPool::kMaxThreads));
  EXPECT_GE(ThreadPool::AvailableCores(), 1u);
  EXPECT_EQ(ThreadPool(ThreadPool::kMaxThreads + 50).size(), ThreadPool::kMaxThreads);
}

}  // namespace
}  // namespace kvist::kernels
