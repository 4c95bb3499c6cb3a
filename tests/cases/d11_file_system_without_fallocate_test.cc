// D11: a file system that lacks what fast ones have (fallocate, O_DIRECT, both) is a slower store and not a broken one;
// one that fails halfway through making the store leaves nothing that breaks the next start.
#include <cerrno>

#include "cachestore/io/fault_file_system.h"
#include "cachestore/local_store.h"
#include "tests/conformance/test_chain.h"

namespace kvist {
namespace {

constexpr std::size_t kBlocks = 6;
constexpr std::uint32_t kPrefixes = 4;

class FileSystemWithoutFallocate : public ::testing::Test {
 protected:
  absl::StatusOr<std::unique_ptr<LocalStore>> Open() {
    LocalStoreOptions options;
    options.nvme.directory = directory_.path() + "/" + store_;
    options.nvme.capacity_bytes = 16 << 20;
    options.nvme.segment_bytes = 2 << 20;
    options.nvme.file_system = &faults_;
    options.dram_bytes = 1 << 20;  // two of the prefixes
    return LocalStore::Open(options);
  }

  void PutAndReadBack() {
    for (const bool written : {false, true}) {
      auto store = Open();
      ASSERT_TRUE(store.ok()) << store.status();
      const Namespace ns = *(*store)->OpenNamespace(TestSpec(), {});
      for (std::uint32_t seed = 0; seed < kPrefixes; ++seed) {
        const auto tokens = TestChain(seed, kBlocks);
        if (!written) {
          ASSERT_TRUE(CommitChain(**store, ns, tokens, Durability::kDurable).ok());
        }
        const auto lease = AcquireNow(**store, ns, tokens);
        ASSERT_TRUE(lease.ok()) << lease.status();
        EXPECT_EQ(lease->blocks().size(), kBlocks);
        EXPECT_TRUE(LeaseIsExact(*lease, ns, tokens));
      }
    }
  }

  TestDirectory directory_;
  std::string store_ = "store";
  std::unique_ptr<FileSystem> posix_ = NewPosixFileSystem();
  FaultFileSystem faults_{posix_.get(), 1};
};

TEST_F(FileSystemWithoutFallocate, WorksWithoutItAndAfterARestart) {
  for (const int error : {EOPNOTSUPP, ENOSYS}) {
    SCOPED_TRACE(error);
    const std::uint64_t before = faults_.fired();
    store_ = "store-" + std::to_string(error);
    faults_.Clear();
    faults_.Add({.op = FaultOp::kAllocate, .error = error, .count = FaultRule::kForever});
    PutAndReadBack();
    EXPECT_GT(faults_.fired(), before);
  }
}

TEST_F(FileSystemWithoutFallocate, WorksWithoutDirectIoEither) {
  faults_.Add({.op = FaultOp::kAllocate, .error = EOPNOTSUPP, .count = FaultRule::kForever});
  faults_.Add({.op = FaultOp::kOpenDirect, .error = EINVAL, .count = FaultRule::kForever});
  PutAndReadBack();
}

// Not a missing feature but no space for the first segment: the store opens, puts are refused as full, and once there
// is space it works without anyone's help.
TEST_F(FileSystemWithoutFallocate, NoSpaceIsNotTakenForAMissingFeature) {
  faults_.Add({.op = FaultOp::kAllocate, .error = ENOSPC, .count = FaultRule::kForever});
  {
    auto store = Open();
    ASSERT_TRUE(store.ok()) << store.status();
    const Namespace ns = *(*store)->OpenNamespace(TestSpec(), {});
    const auto keys = CommitChain(**store, ns, TestChain(0, kBlocks), Durability::kDurable);
    EXPECT_TRUE(absl::IsResourceExhausted(keys.status())) << keys.status();
  }
  faults_.Clear();
  PutAndReadBack();
}

}  // namespace
}  // namespace kvist
