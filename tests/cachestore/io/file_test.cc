#include "cachestore/io/file.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "cachestore/io/clock.h"
#include "cachestore/io/data_file.h"
#include "cachestore/io/errno_status.h"
#include "cachestore/io/fault_file_system.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace kvist {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class FileTest : public ::testing::Test {
 protected:
  FileTest() {
    std::string pattern = ::testing::TempDir() + "/kvist-file-XXXXXX";
    root_ = ::mkdtemp(pattern.data());
  }
  ~FileTest() override { std::filesystem::remove_all(root_); }

  std::unique_ptr<FileSystem> fs_ = NewPosixFileSystem();
  FaultFileSystem faults_{fs_.get(), 1};
  std::string root_;
};

TEST_F(FileTest, ReplacesSmallFilesWholeOrNotAtAll) {
  const std::string path = root_ + "/FORMAT";
  EXPECT_TRUE(absl::IsNotFound(ReadSmallFile(*fs_, path, 100).status()));
  ASSERT_EQ(ReplaceFile(*fs_, path, "one"), absl::OkStatus());
  EXPECT_EQ(ReadSmallFile(*fs_, path, 100).value(), "one");
  EXPECT_TRUE(absl::IsFailedPrecondition(ReadSmallFile(*fs_, path, 2).status()));
  for (const FaultOp op : {FaultOp::kWrite, FaultOp::kSyncData, FaultOp::kRename}) {
    faults_.Add({.op = op, .error = ENOSPC});
    EXPECT_TRUE(absl::IsResourceExhausted(ReplaceFile(faults_, path, "longer text")));
    EXPECT_EQ(ReadSmallFile(*fs_, path, 100).value(), "one");
  }
  ASSERT_EQ(ReplaceFile(faults_, path, "2"), absl::OkStatus());
  EXPECT_EQ(ReadSmallFile(*fs_, path, 100).value(), "2");
}

TEST_F(FileTest, CreatesDirectoriesWithTheirParents) {
  EXPECT_EQ(fs_->CreateDirectory(root_ + "/a/b/c"), absl::OkStatus());
  EXPECT_EQ(fs_->CreateDirectory(root_ + "/a/b/c"), absl::OkStatus());
  EXPECT_THAT(fs_->List(root_).value(), ElementsAre("a"));
  std::ofstream(root_ + "/file") << "x";
  EXPECT_TRUE(absl::IsFailedPrecondition(fs_->CreateDirectory(root_ + "/file")));
  EXPECT_TRUE(absl::IsFailedPrecondition(fs_->CreateDirectory(root_ + "/file/below")));
  EXPECT_TRUE(fs_->Exists(root_ + "/file").value());
  EXPECT_FALSE(fs_->Exists(root_ + "/none").value());
}

TEST_F(FileTest, LocksOnceAndNamesTheHolder) {
  auto lock = fs_->Lock(root_ + "/LOCK");
  ASSERT_TRUE(lock.ok());
  const auto second = fs_->Lock(root_ + "/LOCK");
  EXPECT_TRUE(absl::IsFailedPrecondition(second.status()));
  EXPECT_THAT(std::string(second.status().message()), HasSubstr(std::to_string(::getpid())));
  lock->reset();
  EXPECT_TRUE(fs_->Lock(root_ + "/LOCK").ok());
}

TEST_F(FileTest, CompletesShortTransfersAndReportsTheEnd) {
  auto file = faults_.Open(root_ + "/data", {.create = true, .direct = false}).value();
  std::vector<std::byte> out(64 << 10, std::byte{7});
  faults_.Add({.op = FaultOp::kWrite, .effect = FaultEffect::kShort, .count = 3});
  EXPECT_EQ(WriteFull(*file, 0, out), absl::OkStatus());
  std::vector<std::byte> in(out.size());
  faults_.Add({.op = FaultOp::kRead, .effect = FaultEffect::kShort, .count = 3});
  EXPECT_EQ(ReadFull(*file, 0, in), absl::OkStatus());
  EXPECT_EQ(in, out);
  EXPECT_EQ(faults_.fired(), 6u);
  EXPECT_TRUE(absl::IsOutOfRange(ReadFull(*file, 4096, in)));
}

TEST_F(FileTest, DataFilesLeaveNothingBehindWhenTheDiskIsFull) {
  DataFiles files(&faults_);
  ASSERT_EQ(files.Probe(root_), absl::OkStatus());
  faults_.Add({.op = FaultOp::kAllocate, .error = ENOSPC});
  EXPECT_TRUE(absl::IsResourceExhausted(files.Create(root_ + "/seg", 1 << 20).status()));
  EXPECT_TRUE(fs_->List(root_).value().empty());
  EXPECT_TRUE(files.preallocates());
  const auto file = files.Create(root_ + "/seg", 1 << 20);
  ASSERT_TRUE(file.ok());
  EXPECT_EQ((*file)->Size().value(), 1u << 20);
}

TEST_F(FileTest, DataFilesFindOutWhatIsRefusedOnce) {
  for (const int error : {EOPNOTSUPP, EINVAL, ENOSYS}) {
    faults_.Clear();
    faults_.Add({.op = FaultOp::kAllocate, .error = error, .count = FaultRule::kForever});
    faults_.Add({.op = FaultOp::kOpenDirect, .error = error, .count = FaultRule::kForever});
    const std::uint64_t before = faults_.fired();
    DataFiles files(&faults_);
    ASSERT_EQ(files.Probe(root_), absl::OkStatus());
    for (const char* name : {"/a", "/b"}) ASSERT_TRUE(files.Create(root_ + name, 1 << 20).ok());
    EXPECT_FALSE(files.direct());
    EXPECT_FALSE(files.preallocates());
    EXPECT_EQ(faults_.fired() - before, 2u);
  }
}

TEST(ErrnoStatus, NamesTheFaultAndTheRemedy) {
  const absl::Status full = ErrnoStatus(ENOSPC, "write /x");
  EXPECT_TRUE(absl::IsResourceExhausted(full));
  EXPECT_THAT(std::string(full.message()), ::testing::AllOf(HasSubstr("/x"), HasSubstr("free space")));
  EXPECT_TRUE(absl::IsPermissionDenied(ErrnoStatus(EROFS, "x")));
  EXPECT_TRUE(absl::IsUnavailable(ErrnoStatus(EIO, "x")));
  EXPECT_TRUE(IsRefusedFeature(ErrnoStatus(EOPNOTSUPP, "x")));
  EXPECT_FALSE(IsRefusedFeature(ErrnoStatus(ENOSPC, "x")));
}

TEST(SystemClock, GoesForward) {
  const SystemClock clock;
  const absl::Duration before = clock.Monotonic();
  EXPECT_GE(clock.Monotonic(), before);
  EXPECT_GT(clock.Wall(), absl::FromUnixSeconds(1'600'000'000));
}

}  // namespace
}  // namespace kvist
