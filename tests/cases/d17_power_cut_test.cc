// D17: metadata that is durable before the data it speaks of. The power goes while a store is at work: what was
// acknowledged as durable reads back exactly from what the device is sure to hold, the rest exactly or not at all, and
// fsck finds nothing. (kill -9 proves nothing here: the kernel still writes.) And a sync that failed once is not made
// good by a later one.
#include <atomic>
#include <filesystem>
#include <map>
#include <thread>

#include "absl/time/clock.h"
#include "cachestore/fsck/fsck.h"
#include "cachestore/io/fault_file_system.h"
#include "tests/conformance/local_store_factory.h"
#include "tests/environment.h"
#include "tests/power_cut/power_cut.h"

namespace kvist {
namespace {

constexpr std::uint32_t kWriters = 3;
constexpr std::uint32_t kSeeds = 400;  // chains per writer
constexpr std::size_t kChainBlocks = 3;

struct Mode {
  const char* name;
  std::uint64_t nvme_bytes;
  bool keeps_all;  // nothing is evicted: what was acknowledged must be there
};

class PowerCutStore : public testing::TestWithParam<Mode> {
 protected:
  absl::StatusOr<std::unique_ptr<LocalStore>> Open(const std::string& directory, PowerCut* power) {
    LocalStoreOptions options;
    options.nvme.directory = directory;
    options.nvme.capacity_bytes = GetParam().nvme_bytes;
    options.nvme.segment_bytes = 2 << 20;
    options.dram_bytes = 8 << 20;
    options.clock = &clock_;
    if (power != nullptr) {
      options.nvme.file_system = power->file_system();
      options.nvme.index_env = power->index_env();
    }
    return LocalStore::Open(options);
  }

  // Commits chains, durable block by block, until told to stop; now and then a chain that it had before.
  void Write(LocalStore& store, const Namespace& ns, std::uint32_t writer) {
    for (std::uint32_t i = 0; i < kSeeds && !stop_; ++i) {
      const std::uint32_t seed = writer * kSeeds + (i % 5 == 4 ? i / 2 : i);
      const auto tokens = TestChain(seed, kChainBlocks);
      BlockKey parent = ns.id;
      for (std::size_t block = 0; block < kChainBlocks; ++block) {
        const auto key = CommitBlock(store, ns, parent, tokens, block, Durability::kDurable);
        // Evicted from under its child, or more than the device keeps up with.
        if (absl::IsNotFound(key.status()) || absl::IsResourceExhausted(key.status())) break;
        ASSERT_TRUE(key.ok()) << key.status();
        parent = *key;
        absl::MutexLock lock(&mutex_);
        std::size_t& acked = acked_[seed];
        acked = std::max(acked, block + 1);
      }
    }
  }

  void CheckImage(const std::string& image, const std::map<std::uint32_t, std::size_t>& acked) {
    {
      auto store = Open(image, nullptr);
      ASSERT_TRUE(store.ok()) << store.status();
      const Namespace ns = *(*store)->OpenNamespace(TestSpec(), {});
      for (std::uint32_t seed = 0; seed < kWriters * kSeeds; ++seed) {
        const auto tokens = TestChain(seed, kChainBlocks);
        const auto lease = AcquireNow(**store, ns, tokens);
        ASSERT_TRUE(lease.ok()) << lease.status();
        EXPECT_TRUE(LeaseIsExact(*lease, ns, tokens)) << "chain " << seed;
        const auto it = acked.find(seed);
        if (GetParam().keeps_all && it != acked.end()) {
          EXPECT_GE(lease->blocks().size(), it->second) << "chain " << seed;
        }
      }
      EXPECT_EQ((*store)->Stats()->corrupt_blocks, 0u);
    }
    FsckOptions options;
    options.directory = image;
    const auto report = Fsck(options);
    ASSERT_TRUE(report.ok()) << report.status();
    for (const FsckProblem& problem : report->problems) ADD_FAILURE() << problem.path << ": " << problem.what;
  }

  FakeClock clock_;
  std::atomic<bool> stop_ = false;
  absl::Mutex mutex_;
  std::map<std::uint32_t, std::size_t> acked_;  // by chain: blocks from its head on
};

TEST_P(PowerCutStore, WhatWasAcknowledgedIsThereAndTheRestExactOrGone) {
  const std::uint64_t seed = TestSeed();
  SCOPED_TRACE("KVIST_SEED=" + std::to_string(seed));
  std::mt19937_64 random(seed);
  const std::uint64_t images = FromEnvironment("KVIST_POWER_CUTS", 8);
  TestDirectory root;
  PowerCut power(seed);
  const std::string directory = root.path() + "/store";
  auto store = Open(directory, &power);
  ASSERT_TRUE(store.ok()) << store.status();
  const Namespace ns = *(*store)->OpenNamespace(TestSpec(), {});
  std::vector<std::thread> writers;
  for (std::uint32_t w = 0; w < kWriters; ++w) {
    writers.emplace_back([&, w] { Write(**store, ns, w); });
  }
  for (std::uint64_t i = 0; i < images && !HasFailure(); ++i) {
    absl::SleepFor(absl::Milliseconds(random() % 60));
    std::map<std::uint32_t, std::size_t> acked;
    {
      absl::MutexLock lock(&mutex_);
      acked = acked_;
    }
    const std::string image = root.path() + "/image";
    power.Image(directory, image);
    CheckImage(image, acked);
    std::filesystem::remove_all(image);
  }
  stop_ = true;
  for (std::thread& writer : writers) writer.join();
  EXPECT_FALSE(acked_.empty());
}

INSTANTIATE_TEST_SUITE_P(Modes, PowerCutStore,
                         testing::Values(Mode{"Ample", 512 << 20, true}, Mode{"Tight", 16 << 20, false}),
                         [](const auto& mode) { return std::string(mode.param.name); });

// The kernel may drop what it could not write and call the next sync a success.
TEST(FailedSync, IsNotMadeGoodByALaterSuccess) {
  const std::unique_ptr<FileSystem> base = NewPosixFileSystem();
  FaultFileSystem faults(base.get(), 1);
  class Factory final : public LocalStoreFactory {
   public:
    explicit Factory(FileSystem* files) : files_(files) {}

   protected:
    void Adjust(LocalStoreOptions& options) override { options.nvme.file_system = files_; }

   private:
    FileSystem* files_;
  };
  Factory factory(&faults);
  const auto lost = TestChain(1, 2);
  const auto kept = TestChain(2, 2);
  {
    const auto store = factory.OpenLocal({});
    ASSERT_TRUE(store.ok()) << store.status();
    const Namespace ns = *(*store)->OpenNamespace(TestSpec(), {});
    faults.Add({.op = FaultOp::kSyncData, .path_contains = "segments/"});
    EXPECT_FALSE(CommitChain(**store, ns, lost, Durability::kDurable).ok());
    EXPECT_EQ(faults.fired(), 1u);
    ASSERT_TRUE(CommitChain(**store, ns, kept, Durability::kDurable).ok());
    EXPECT_EQ(MatchNow(**store, ns, kept)->blocks(), 2u);
  }
  const auto store = factory.OpenLocal({});
  ASSERT_TRUE(store.ok()) << store.status();
  const Namespace ns = *(*store)->OpenNamespace(TestSpec(), {});
  EXPECT_EQ(MatchedBlocks(**store, ns, lost), 0u);
  const auto lease = AcquireNow(**store, ns, kept);
  ASSERT_TRUE(lease.ok()) << lease.status();
  EXPECT_EQ(lease->blocks().size(), 2u);
  EXPECT_TRUE(LeaseIsExact(*lease, ns, kept));
}

}  // namespace
}  // namespace kvist
