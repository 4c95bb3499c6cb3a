// What fails under the tier: nothing wrong is ever read, what was acknowledged stays or is a miss, and the tier lives.
#include "tests/cachestore/tier/nvme_fixture.h"

namespace kvist {
namespace {

using ::testing::HasSubstr;

class NvmeFault : public NvmeFixture, public ::testing::WithParamInterface<AsyncIoOptions::Backend> {
 protected:
  // On tmpfs: the faults are ours, and there are many stores to make.
  NvmeFault() : NvmeFixture("/dev/shm") { options_.file_system = &faults_; }
  ~NvmeFault() override { tier_.reset(); }

  std::unique_ptr<FileSystem> posix_ = NewPosixFileSystem();
  FaultFileSystem faults_{posix_.get(), 1, GetParam()};
};

INSTANTIATE_TEST_SUITE_P(Backends, NvmeFault,
                         ::testing::Values(AsyncIoOptions::Backend::kUring, AsyncIoOptions::Backend::kThreads),
                         [](const auto& test) {
                           return test.param == AsyncIoOptions::Backend::kUring ? "Uring" : "Threads";
                         });

TEST_P(NvmeFault, CarriesOnWithoutFallocate) {
  faults_.Add({.op = FaultOp::kAllocate, .error = EOPNOTSUPP, .count = FaultRule::kForever});
  Open();
  for (std::uint64_t i = 0; i < 30; ++i) ASSERT_EQ(Write(i), absl::OkStatus());
  EXPECT_EQ(faults_.fired(), 1u);  // found out once
  Open();
  for (std::uint64_t i = 0; i < 30; ++i) EXPECT_EQ(Check(i), absl::OkStatus());
}

TEST_P(NvmeFault, CarriesOnWithoutDirectIo) {
  faults_.Add({.op = FaultOp::kOpenDirect, .error = EINVAL, .count = FaultRule::kForever});
  Open();
  EXPECT_FALSE(tier_->Stats().direct_io);
  EXPECT_EQ(faults_.fired(), 1u);
  for (std::uint64_t i = 0; i < 30; ++i) ASSERT_EQ(Write(i), absl::OkStatus());
  Open();
  for (std::uint64_t i = 0; i < 30; ++i) EXPECT_EQ(Check(i), absl::OkStatus());
}

TEST_P(NvmeFault, CarriesOnWhereDirectTransfersFailThoughTheFlagIsTaken) {
  faults_.Add({.op = FaultOp::kWrite, .error = EINVAL, .path_contains = "probe"});
  Open();
  EXPECT_FALSE(tier_->Stats().direct_io);
  ASSERT_EQ(Write(1), absl::OkStatus());
  EXPECT_EQ(Check(1), absl::OkStatus());
}

// Wherever the creation of a store fails, the error is clear, and the next start works.
TEST_P(NvmeFault, SurvivesAFailureAtEveryStepOfItsCreation) {
  const FaultOp kSteps[] = {FaultOp::kCreateDirectory, FaultOp::kLock,   FaultOp::kOpenDirect,    FaultOp::kOpen,
                            FaultOp::kWrite,           FaultOp::kRename, FaultOp::kSyncDirectory, FaultOp::kSyncData,
                            FaultOp::kRemove};
  int failures = 0;
  for (const FaultOp op : kSteps) {
    for (std::uint64_t skip = 0; skip < 5; ++skip) {
      SCOPED_TRACE(testing::Message() << static_cast<int>(op) << " after " << skip);
      Close();
      std::filesystem::remove_all(options_.directory);
      faults_.Clear();
      const std::uint64_t before = faults_.fired();
      faults_.Add({.op = op, .error = EIO, .skip = skip, .count = 1});
      const absl::Status status = TryOpen();
      if (faults_.fired() > before && !status.ok()) {
        EXPECT_THAT(std::string(status.message()), HasSubstr("injected"));
        ++failures;
      }
      faults_.Clear();
      Open();
      ASSERT_EQ(Write(1), absl::OkStatus());
      ASSERT_EQ(Check(1), absl::OkStatus());
    }
  }
  EXPECT_GT(failures, 8);
}

TEST_P(NvmeFault, SaysWhatToDoWhereItMayNotWrite) {
  faults_.Add({.op = FaultOp::kLock, .error = EACCES});
  absl::Status status = TryOpen();
  EXPECT_TRUE(absl::IsPermissionDenied(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("write access"));
  faults_.Add({.op = FaultOp::kCreateDirectory, .error = EROFS});
  EXPECT_TRUE(absl::IsPermissionDenied(TryOpen()));
  faults_.Add({.op = FaultOp::kWrite, .error = ENOSPC, .path_contains = "FORMAT"});
  std::filesystem::remove_all(options_.directory);
  status = TryOpen();
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("free space"));
  Open();
}

// D15: a full disk in the middle of a write. The half that reached the disk is nobody's.
TEST_P(NvmeFault, FailsWritesOnAFullDiskAndResumesWhenThereIsSpace) {
  Open();
  for (std::uint64_t i = 0; i < 5; ++i) ASSERT_EQ(Write(i), absl::OkStatus());
  faults_.Add({.op = FaultOp::kWrite,
               .effect = FaultEffect::kHalfError,
               .error = ENOSPC,
               .path_contains = "seg-",
               .count = FaultRule::kForever});
  const std::size_t segments = SegmentFiles().size();
  for (std::uint64_t i = 5; i < 105; ++i) {
    const absl::Status status = Write(i);
    ASSERT_TRUE(absl::IsResourceExhausted(status)) << status;
    ASSERT_FALSE(Resident(i));
  }
  EXPECT_EQ(SegmentFiles().size(), segments);  // failed writes use up nothing
  EXPECT_EQ(tier_->Stats().evicted_blocks, 0u);
  for (std::uint64_t i = 0; i < 5; ++i) EXPECT_EQ(Check(i), absl::OkStatus());
  faults_.Clear();
  for (std::uint64_t i = 5; i < 15; ++i) ASSERT_EQ(Write(i), absl::OkStatus());
  Open();
  for (std::uint64_t i = 0; i < 15; ++i) EXPECT_EQ(Check(i), absl::OkStatus()) << i;
}

TEST_P(NvmeFault, FailsWritesWhenNoSegmentCanBeCreatedAndLeavesNoPartOfOne) {
  Open();
  for (std::uint64_t i = 0; i < 10; ++i) ASSERT_EQ(Write(i), absl::OkStatus());
  faults_.Add({.op = FaultOp::kAllocate, .error = ENOSPC, .count = FaultRule::kForever});
  const std::size_t segments = SegmentFiles().size();
  for (std::uint64_t i = 10; i < 15; ++i) EXPECT_TRUE(absl::IsResourceExhausted(Write(i))) << Write(i);
  EXPECT_EQ(SegmentFiles().size(), segments);
  faults_.Clear();
  for (std::uint64_t i = 10; i < 15; ++i) ASSERT_EQ(Write(i), absl::OkStatus());
  Open();
  for (std::uint64_t i = 0; i < 15; ++i) EXPECT_EQ(Check(i), absl::OkStatus()) << i;
}

TEST_P(NvmeFault, AFailedWriteIsAbsentAndOthersOfItsGroupArePresent) {
  Open();
  faults_.Add({.op = FaultOp::kWrite, .path_contains = "seg-", .skip = 3, .count = 2});
  std::vector<std::unique_ptr<TestBlock>> blocks;
  std::vector<absl::Status> results(20);
  for (std::uint64_t i = 0; i < 20; ++i) blocks.push_back(std::make_unique<TestBlock>(i));
  absl::BlockingCounter pending(20);
  for (std::uint64_t i = 0; i < 20; ++i) {
    tier_->Write(blocks[i]->block, blocks[i]->record.bytes(), [&, i](absl::Status s) {
      results[i] = std::move(s);
      pending.DecrementCount();
    });
  }
  pending.Wait();
  EXPECT_EQ(std::count_if(results.begin(), results.end(), [](const auto& s) { return absl::IsUnavailable(s); }), 2);
  EXPECT_EQ(tier_->Stats().device_errors, 2u);
  Open();
  for (std::uint64_t i = 0; i < 20; ++i) {
    EXPECT_EQ(Resident(i), results[i].ok());
    if (results[i].ok()) {
      EXPECT_EQ(Check(i), absl::OkStatus());
    }
  }
}

// D17: after a failed sync what was written since the last good one is never trusted, whatever a later sync says.
TEST_P(NvmeFault, NeverAcknowledgesNorKeepsWhatAFailedSyncCovered) {
  Open();
  for (std::uint64_t i = 0; i < 3; ++i) ASSERT_EQ(Write(i), absl::OkStatus());
  faults_.Add({.op = FaultOp::kSyncData, .path_contains = "seg-", .count = 1});
  EXPECT_TRUE(absl::IsUnavailable(Write(3)));
  EXPECT_FALSE(Resident(3));
  EXPECT_EQ(tier_->Stats().device_errors, 1u);
  for (std::uint64_t i = 4; i < 8; ++i) ASSERT_EQ(Write(i), absl::OkStatus());  // elsewhere
  EXPECT_EQ(SegmentFiles().size(), 2u);
  Open();
  EXPECT_FALSE(Resident(3));
  for (const std::uint64_t i : {0, 1, 2, 4, 5, 6, 7}) EXPECT_EQ(Check(i), absl::OkStatus()) << i;
}

TEST_P(NvmeFault, StopsWritingToADeviceThatKeepsFailingButGoesOnReading) {
  Open();
  ASSERT_EQ(Write(0), absl::OkStatus());
  faults_.Add({.op = FaultOp::kSyncData, .path_contains = "seg-", .count = FaultRule::kForever});
  for (std::uint64_t i = 1; i < 20; ++i) EXPECT_TRUE(absl::IsUnavailable(Write(i))) << Write(i);
  EXPECT_LE(SegmentFiles().size(), 4u);
  EXPECT_EQ(Check(0), absl::OkStatus());
  faults_.Clear();
  EXPECT_TRUE(absl::IsUnavailable(Write(1)));  // until a restart
  Open();
  EXPECT_EQ(Write(1), absl::OkStatus());
  EXPECT_EQ(Check(0), absl::OkStatus());
}

TEST_P(NvmeFault, AReadErrorIsAMissFromThenOn) {
  Open();
  for (std::uint64_t i = 0; i < 3; ++i) ASSERT_EQ(Write(i), absl::OkStatus());
  faults_.Add({.op = FaultOp::kRead, .path_contains = "seg-", .count = 1});
  EXPECT_TRUE(absl::IsUnavailable(Check(1)));
  EXPECT_TRUE(absl::IsNotFound(Check(1)));
  EXPECT_EQ(Check(0), absl::OkStatus());
  EXPECT_EQ(tier_->Stats().device_errors, 1u);
}

// Every bit that could flip would be too many: a seeded sample of them, on the way out and on the way in.
TEST_P(NvmeFault, FlippedBitsAreMissesWhereverTheyAre) {
  Open();
  std::uint64_t next = 0;
  for (int round = 0; round < 60; ++round) {
    const std::uint64_t i = next++;
    const bool at_write = round % 2 == 0;
    if (at_write) faults_.Add({.op = FaultOp::kWrite, .effect = FaultEffect::kFlipBit, .path_contains = "seg-"});
    ASSERT_EQ(Write(i), absl::OkStatus());
    if (!at_write) faults_.Add({.op = FaultOp::kRead, .effect = FaultEffect::kFlipBit, .path_contains = "seg-"});
    const absl::Status status = Check(i);
    // A bit in padding harms nobody.
    EXPECT_TRUE(absl::IsDataLoss(status) || status.ok()) << status;
    EXPECT_EQ(Resident(i), status.ok());
    faults_.Clear();
  }
  EXPECT_EQ(faults_.fired(), 60u);
  EXPECT_GT(tier_->Stats().corrupt_blocks, 40u);
}

TEST_P(NvmeFault, ShortTransfersAreCompleted) {
  Open();
  faults_.Add({.op = FaultOp::kWrite,
               .effect = FaultEffect::kShort,
               .path_contains = "seg-",
               .count = FaultRule::kForever,
               .probability = 0.7});
  faults_.Add({.op = FaultOp::kRead,
               .effect = FaultEffect::kShort,
               .path_contains = "seg-",
               .count = FaultRule::kForever,
               .probability = 0.7});
  for (std::uint64_t i = 0; i < 20; ++i) ASSERT_EQ(Write(i), absl::OkStatus());
  for (std::uint64_t i = 0; i < 20; ++i) EXPECT_EQ(Check(i), absl::OkStatus());
}

// Any fault, anywhere, at random: right, a miss or an error, and after reopening without faults as before.
TEST_P(NvmeFault, IsNeverWrongUnderRandomFaults) {
  Open();
  for (const FaultOp op : {FaultOp::kRead, FaultOp::kWrite, FaultOp::kSyncData, FaultOp::kAllocate, FaultOp::kRemove,
                           FaultOp::kSyncDirectory}) {
    faults_.Add({.op = op,
                 .error = op == FaultOp::kAllocate ? ENOSPC : EIO,
                 .path_contains = "seg",
                 .count = FaultRule::kForever,
                 .probability = op == FaultOp::kSyncData ? 0.01 : 0.05});
  }
  faults_.Add({.op = FaultOp::kWrite,
               .effect = FaultEffect::kFlipBit,
               .path_contains = "seg-",
               .count = FaultRule::kForever,
               .probability = 0.05});
  std::vector<bool> acknowledged(300);
  for (std::uint64_t i = 0; i < 300; ++i) {
    acknowledged[i] = Write(i).ok();
    EXPECT_EQ(Resident(i), acknowledged[i]);
    const std::uint64_t back = i - i % 7;
    const absl::Status status = Check(back);
    EXPECT_TRUE(status.ok() || absl::IsNotFound(status) || absl::IsDataLoss(status) || absl::IsUnavailable(status))
        << status;
  }
  faults_.Clear();
  Open();
  std::uint64_t right = 0;
  for (std::uint64_t i = 0; i < 300; ++i) {
    if (Resident(i)) {
      EXPECT_TRUE(acknowledged[i]) << i;
    }
    const absl::Status status = Check(i);
    EXPECT_TRUE(status.ok() || absl::IsNotFound(status) || absl::IsDataLoss(status)) << status;
    right += status.ok() ? 1 : 0;
  }
  EXPECT_GT(right, 20u);
}

}  // namespace
}  // namespace kvist
