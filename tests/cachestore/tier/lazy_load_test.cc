// A store that is in use before its index is read. The removal log, which loading begins with, is what gets stuck.
#include <filesystem>
#include <thread>

#include "absl/synchronization/notification.h"
#include "cachestore/io/clock.h"
#include "cachestore/local_store.h"
#include "tests/cachestore/shared/stalled_file_system.h"
#include "tests/conformance/test_chain.h"

namespace kvist {
namespace {

constexpr std::size_t kBlocks = 6;
constexpr std::uint32_t kChains = 5;

class LazyLoadTest : public ::testing::Test {
 protected:
  ~LazyLoadTest() override { disk_.Release(); }

  LocalStoreOptions Options() {
    LocalStoreOptions options;
    options.nvme.directory = directory_.path() + "/store";
    options.nvme.capacity_bytes = 16 << 20;
    options.nvme.segment_bytes = 2 << 20;
    options.nvme.file_system = &disk_;
    options.dram_bytes = 4 << 20;
    options.clock = &clock_;
    return options;
  }
  void Open(const LocalStoreOptions& options) {
    auto store = LocalStore::Open(options);
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
    ns_ = *store_->OpenNamespace(TestSpec(), {});
  }
  void FillAndClose() {
    Open(Options());
    for (std::uint32_t seed = 0; seed < kChains; ++seed) {
      ASSERT_TRUE(CommitChain(*store_, ns_, TestChain(seed, kBlocks), Durability::kDurable).ok());
    }
    store_.reset();
  }
  void OpenStuck() {
    disk_.StallFiles("/REMOVALS");
    LocalStoreOptions options = Options();
    options.nvme.load_wait = absl::ZeroDuration();
    Open(options);
    disk_.AwaitStuck(1);
    ASSERT_TRUE(store_->Stats()->loading);
  }
  void ExpectExact(std::uint32_t seed, std::size_t blocks) {
    const auto tokens = TestChain(seed, blocks);
    EXPECT_EQ(MatchedBlocks(*store_, ns_, tokens), blocks);
    const auto lease = AcquireNow(*store_, ns_, tokens);
    ASSERT_TRUE(lease.ok()) << lease.status();
    EXPECT_EQ(lease->blocks().size(), blocks);
    EXPECT_TRUE(LeaseIsExact(*lease, ns_, tokens));
  }

  TestDirectory directory_{kMemoryRoot};
  StalledFileSystem disk_;
  FakeClock clock_;
  std::unique_ptr<LocalStore> store_;
  Namespace ns_;
};

TEST_F(LazyLoadTest, HitsBeforeTheIndexIsRead) {
  FillAndClose();
  OpenStuck();
  EXPECT_EQ(store_->Stats()->nvme.blocks, 0u);
  ExpectExact(0, kBlocks);
  EXPECT_EQ(MatchedBlocks(*store_, ns_, TestChain(99, kBlocks)), 0u);
  EXPECT_EQ(store_->Stats()->nvme.blocks, kBlocks) << "only what was asked for is loaded";
  disk_.Release();
  ASSERT_TRUE(CommitChain(*store_, ns_, TestChain(50, 1), Durability::kDurable).ok());
  EXPECT_FALSE(store_->Stats()->loading);
  EXPECT_EQ(store_->Stats()->nvme.blocks, kChains * kBlocks + 1);
  for (std::uint32_t seed = 0; seed < kChains; ++seed) ExpectExact(seed, kBlocks);
}

TEST_F(LazyLoadTest, CommitsAreTakenAndDurableOnesWait) {
  FillAndClose();
  OpenStuck();
  // Below a block that only the index knows, and again what the index has.
  auto tokens = TestChain(1, kBlocks + 1);
  absl::Notification durable;
  absl::Status status;
  ASSERT_TRUE(CommitChain(*store_, ns_, tokens).ok());
  EXPECT_EQ(store_->Stats()->committed_blocks, 1u);
  store_->Flush({}, [&](absl::Status s) {
    status = std::move(s);
    durable.Notify();
  });
  EXPECT_FALSE(durable.HasBeenNotified());
  ExpectExact(1, kBlocks + 1);
  disk_.Release();
  durable.WaitForNotification();
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(store_->Stats()->nvme.blocks, kChains * kBlocks + 1);
  store_.reset();
  Open(Options());
  ExpectExact(1, kBlocks + 1);
}

TEST_F(LazyLoadTest, ADropWaitsForWhatIsNotLoadedAndNothingComesBack) {
  FillAndClose();
  OpenStuck();
  ExpectExact(2, kBlocks);
  absl::Notification dropped;
  absl::StatusOr<DropResult> result;
  DropRequest all;
  all.all = true;
  store_->Drop(all, {}, [&](absl::StatusOr<DropResult> r) {
    result = std::move(r);
    dropped.Notify();
  });
  // The one that ends calls in time is not kept waiting.
  const auto late = Await<DropResult>(
      [&](Done<DropResult> d) { store_->Drop(all, {.timeout = absl::Milliseconds(5), .cancel = {}}, std::move(d)); });
  EXPECT_TRUE(absl::IsDeadlineExceeded(late.status())) << late.status();
  EXPECT_FALSE(dropped.HasBeenNotified());
  disk_.Release();
  dropped.WaitForNotification();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->blocks, kChains * kBlocks);
  for (std::uint32_t seed = 0; seed < kChains; ++seed) {
    EXPECT_EQ(MatchedBlocks(*store_, ns_, TestChain(seed, kBlocks)), 0u);
  }
  store_.reset();
  Open(Options());
  EXPECT_EQ(store_->Stats()->nvme.blocks, 0u);
}

// Its entry is still in the index that is read afterwards.
TEST_F(LazyLoadTest, ABlockFoundCorruptMeanwhileStaysGone) {
  FillAndClose();
  for (const auto& file : std::filesystem::directory_iterator(directory_.path() + "/store/segments")) {
    std::filesystem::resize_file(file.path(), 0);
    std::filesystem::resize_file(file.path(), 2 << 20);  // zeros
  }
  OpenStuck();
  const auto lease = AcquireNow(*store_, ns_, TestChain(3, kBlocks));
  ASSERT_TRUE(lease.ok()) << lease.status();
  EXPECT_EQ(lease->blocks().size(), 0u);
  const std::uint64_t corrupt = store_->Stats()->corrupt_blocks;
  EXPECT_GE(corrupt, 1u);
  EXPECT_LT(MatchedBlocks(*store_, ns_, TestChain(3, kBlocks)), kBlocks);
  disk_.Release();
  ASSERT_TRUE(CommitChain(*store_, ns_, TestChain(50, 1), Durability::kDurable).ok());
  EXPECT_EQ(store_->Stats()->nvme.blocks, kChains * kBlocks + 1 - corrupt);
}

TEST_F(LazyLoadTest, PinsOfBlocksLoadedLaterHold) {
  Open(Options());
  const auto tokens = TestChain(0, kBlocks);
  ASSERT_TRUE(CommitChain(*store_, ns_, tokens, Durability::kDurable).ok());
  const auto pinned = Await<std::size_t>([&](Done<std::size_t> d) { store_->Pin(ns_.id, tokens, {}, std::move(d)); });
  ASSERT_TRUE(pinned.ok()) << pinned.status();
  store_.reset();
  OpenStuck();
  clock_.Advance(absl::Hours(100));
  ExpectExact(0, kBlocks);  // into DRAM, while the rest is loaded
  clock_.Advance(absl::Hours(100));
  disk_.Release();
  ASSERT_TRUE(CommitChain(*store_, ns_, TestChain(50, 1), Durability::kDurable).ok());
  ASSERT_TRUE(store_->Sweep().ok());
  ExpectExact(0, kBlocks);
}

TEST_F(LazyLoadTest, ClosesWithoutWaitingAndKeepsAll) {
  FillAndClose();
  OpenStuck();
  ExpectExact(4, 2);
  std::thread closer([&] { store_.reset(); });
  disk_.Release();
  closer.join();
  Open(Options());
  EXPECT_EQ(store_->Stats()->nvme.blocks, kChains * kBlocks);
  for (std::uint32_t seed = 0; seed < kChains; ++seed) ExpectExact(seed, kBlocks);
}

}  // namespace
}  // namespace kvist
