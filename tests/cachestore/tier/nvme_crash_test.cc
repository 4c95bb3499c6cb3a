// kill -9 at arbitrary moments: what was acknowledged is there and right, all else is right or absent.
#include <sys/wait.h>

#include <csignal>
#include <random>

#include "tests/cachestore/tier/nvme_fixture.h"

namespace kvist {
namespace {

class NvmeCrash : public NvmeFixture {
 protected:
  // Runs `work` in a child that ends by SIGKILL: the parent's, after `acks` bytes came through the pipe.
  template <typename Work>
  std::vector<std::uint64_t> KillAfter(std::size_t acks, Work work) {
    int pipe_fds[2];
    EXPECT_EQ(::pipe(pipe_fds), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      ::close(pipe_fds[0]);
      work([fd = pipe_fds[1]](std::uint64_t i) {
        if (::write(fd, &i, sizeof i) != sizeof i) ::_exit(3);
      });
      ::_exit(4);  // work does not end by itself
    }
    ::close(pipe_fds[1]);
    std::vector<std::uint64_t> acknowledged;
    std::uint64_t i = 0;
    const auto next = [&] { return ::read(pipe_fds[0], &i, sizeof i) == sizeof i; };
    while (acknowledged.size() < acks && next()) acknowledged.push_back(i);
    ::kill(child, SIGKILL);
    while (next()) acknowledged.push_back(i);  // acknowledged before it died
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status)) << "the child ended by itself: " << WEXITSTATUS(status);
    ::close(pipe_fds[0]);
    return acknowledged;
  }
};

TEST_F(NvmeCrash, EveryAcknowledgedBlockSurvivesKill) {
  std::mt19937_64 random(17);
  std::uint64_t first = 0;
  std::vector<std::uint64_t> all;
  for (int round = 0; round < 5; ++round) {
    const std::vector<std::uint64_t> acknowledged =
        KillAfter(3 + random() % 12, [&](const std::function<void(std::uint64_t)>& ack) {
          Open();
          std::vector<std::unique_ptr<TestBlock>> blocks;
          for (std::uint64_t i = first;; ++i) {
            blocks.push_back(std::make_unique<TestBlock>(i));
            tier_->Write(blocks.back()->block, blocks.back()->record.bytes(), [&ack, i](absl::Status s) {
              if (s.ok()) ack(i);
            });
            if (i % 6 == 5) (void)FlushTier(*tier_);
            if (i - first > 60) ::pause();
          }
        });
    ASSERT_FALSE(acknowledged.empty());
    all.insert(all.end(), acknowledged.begin(), acknowledged.end());
    first += 100;
    Open();
    for (const std::uint64_t i : all) {
      // 5 rounds of at most 62 blocks overrun the capacity: the oldest may have been evicted, the newest not.
      const absl::Status status = Check(i);
      EXPECT_TRUE(status.ok() || (i + 100 < first && absl::IsNotFound(status))) << round << " " << i << status;
    }
    for (std::uint64_t i = 0; i < first; ++i) {
      const absl::Status status = Check(i);
      EXPECT_TRUE(status.ok() || absl::IsNotFound(status)) << i << status;
    }
    EXPECT_EQ(tier_->Stats().corrupt_blocks, 0u);
    Close();
  }
}

TEST_F(NvmeCrash, IsNeverWrongWhenKilledWhileEvictingAndCleaning) {
  options_.directory = root_ + "/store";
  std::mt19937_64 random(23);
  std::uint64_t first = 0;
  for (int round = 0; round < 4; ++round) {
    const std::vector<std::uint64_t> acknowledged =
        KillAfter(150 + random() % 60, [&](const std::function<void(std::uint64_t)>& ack) {
          Open();
          std::mt19937_64 choice(static_cast<std::uint64_t>(round));
          for (std::uint64_t i = first;; ++i) {
            if (Write(i).ok()) ack(i);
            const std::vector<BlockKey> touched = {TestBlock::Key(i - choice() % std::min<std::uint64_t>(i + 1, 80))};
            tier_->Touch(touched, kTestExpiry);
          }
        });
    ASSERT_FALSE(acknowledged.empty());
    const std::uint64_t last = acknowledged.back();
    Open();
    EXPECT_LE(SegmentFileBytes(), options_.capacity_bytes);
    for (std::uint64_t i = 0; i <= last + 1; ++i) {
      const absl::Status status = Check(i);
      EXPECT_TRUE(status.ok() || absl::IsNotFound(status)) << i << status;
    }
    // The newest cannot have been evicted yet.
    for (std::uint64_t i = last - 10; i <= last; ++i) EXPECT_EQ(Check(i), absl::OkStatus()) << i;
    EXPECT_EQ(tier_->Stats().corrupt_blocks, 0u);
    Close();
    first = last + 100;
  }
}

TEST_F(NvmeCrash, TheLockOfADeadProcessIsFree) {
  (void)KillAfter(1, [&](const std::function<void(std::uint64_t)>& ack) {
    Open();
    ack(1);
    ::pause();
  });
  Open();
}

TEST_F(NvmeCrash, ASecondProcessIsToldWhoHoldsTheStore) {
  Open();
  int status = 0;
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child == 0) {
    const auto second = NvmeTier::Open(options_);
    const std::string message(second.status().message());
    ::_exit(absl::IsFailedPrecondition(second.status()) && message.find(std::to_string(parent)) != std::string::npos
                ? 0
                : 1);
  }
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

}  // namespace
}  // namespace kvist
