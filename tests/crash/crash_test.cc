// A store under load from several threads is killed with SIGKILL at random points, over and over. After each: what was
// acknowledged as durable reads back exactly, what was dropped is gone, nothing is half there, nothing leaks, and fsck
// finds nothing. KVIST_CRASH_ROUNDS (25) sets how often, KVIST_SEED replays.
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <random>
#include <set>

#include "cachestore/fsck/fsck.h"
#include "cachestore/index/block_index.h"
#include "tests/cases/child_process.h"
#include "tests/crash/crash_load.h"
#include "tests/environment.h"

namespace kvist::crash {
namespace {

// Kills in a row on one directory, so that recoveries are recovered from.
constexpr int kRoundsPerDirectory = 5;
// Between a line of the worker's and the kill.
constexpr int kDelayMaxMicroseconds = 4000;
constexpr int kOpeningMicroseconds = 60'000;
constexpr double kLinesMax = 600;

// What the worker has said of one tenant.
struct Expected {
  std::map<std::uint32_t, std::size_t> acked;  // by chain: blocks from its head on
  std::set<std::uint32_t> gone;                // dropped, and not acked since
  bool uncertain = false;                      // killed while dropping

  void Drop(bool done) {
    uncertain = !done;
    if (!done) return;
    for (const auto& [seed, blocks] : acked) gone.insert(seed);
    acked.clear();
  }
  void Ack(std::uint32_t seed, std::size_t block) {
    std::size_t& blocks = acked[seed];
    blocks = std::max(blocks, block + 1);
    gone.erase(seed);
  }
};

class Crash : public testing::TestWithParam<bool> {
 protected:
  bool tight() const { return GetParam(); }

  void RunAndKill(std::mt19937_64& random) {
    ChildProcess worker({CRASH_WORKER_BINARY, directory_, std::to_string(random()), tight() ? "tight" : "ample"});
    // Evenly over magnitudes: early, during the first writes, and late, with all tiers in motion.
    const auto lines =
        static_cast<std::size_t>(std::exp(std::uniform_real_distribution<>(0, std::log(kLinesMax))(random)));
    if (random() % 8 == 0) {  // while it opens
      ::usleep(static_cast<useconds_t>(random() % kOpeningMicroseconds));
    } else {
      for (std::size_t i = 0; i < lines; ++i) ASSERT_TRUE(Hear(worker)) << "the worker ended by itself";
      ::usleep(static_cast<useconds_t>(random() % kDelayMaxMicroseconds));
    }
    worker.Kill();
    while (Hear(worker)) {
    }
  }

  // One line of the worker's; false at the end.
  bool Hear(ChildProcess& worker) {
    const auto line = worker.ReadLine("");
    if (!line) return false;
    int tenant = 0;
    unsigned seed = 0;
    std::size_t block = 0;
    if (std::sscanf(line->c_str(), "acked %d %u %zu", &tenant, &seed, &block) == 3) {
      expected_[tenant].Ack(seed, block);
    } else if (std::sscanf(line->c_str(), "dropping %d", &tenant) == 1) {
      expected_[tenant].Drop(false);
    } else if (std::sscanf(line->c_str(), "dropped %d", &tenant) == 1) {
      expected_[tenant].Drop(true);
    } else if (line->starts_with("wrong")) {  // anything else is the log
      ADD_FAILURE() << *line;
    }
    return true;
  }

  FsckReport Check(bool rebuild = false) {
    FsckOptions options;
    options.directory = directory_;
    options.rebuild_index = rebuild;
    const auto report = Fsck(options);
    if (absl::IsNotFound(report.status()) && !ever_opened_) return {};  // killed before there was a store
    EXPECT_TRUE(report.ok()) << report.status();
    if (!report.ok()) return {};
    for (const FsckProblem& problem : report->problems) {
      ADD_FAILURE() << "fsck: " << problem.path << " " << problem.offset.value_or(0) << ": " << problem.what;
    }
    return *report;
  }

  void CheckTenant(LocalStore& store, int tenant) {
    Expected& expected = expected_[tenant];
    const auto ns = store.OpenNamespace(SpecOf(tenant), RetentionOf(tenant));
    ASSERT_TRUE(ns.ok()) << ns.status();
    for (std::uint32_t seed = 0; seed < kSeeds; ++seed) {
      const auto tokens = TestTokens(seed, kBlocks * ns->spec.block_tokens);
      const auto lease = AcquireNow(store, *ns, tokens);
      ASSERT_TRUE(lease.ok()) << lease.status();
      EXPECT_TRUE(LeaseIsExact(*lease, *ns, tokens)) << tenant << " " << seed;
      const std::size_t blocks = lease->blocks().size();
      // A chain that was begun again after the drop, unacknowledged, may be there too.
      const auto acked = expected.acked.find(seed);
      if (acked != expected.acked.end() && !expected.uncertain && !tight() && tenant != kBriefTenant) {
        EXPECT_GE(blocks, acked->second) << "tenant " << tenant << " chain " << seed;
      }
      if (expected.gone.contains(seed)) {
        EXPECT_LE(blocks, 1u) << "tenant " << tenant << " chain " << seed;
      }
      // From here on what is there is what counts.
      expected.acked.erase(seed);
      if (blocks > 0) expected.acked[seed] = blocks;
      if (blocks > 0) expected.gone.erase(seed);
    }
    expected.uncertain = false;
  }

  void CheckStore() {
    (void)Check();
    {
      auto store = LocalStore::Open(OptionsOf(directory_, tight(), &clock_));
      ASSERT_TRUE(store.ok()) << store.status();
      ever_opened_ = true;
      for (int tenant = 0; tenant < kTenants; ++tenant) CheckTenant(**store, tenant);
      EXPECT_EQ((*store)->Stats()->corrupt_blocks, 0u);
      EXPECT_EQ((*store)->Stats()->device_errors, 0u);
    }
    CheckNothingLeaks(Check());
  }

  // After a clean close there is nothing in the directory that the index does not account for.
  void CheckNothingLeaks(const FsckReport& report) {
    for (const std::string& note : report.notes) {
      EXPECT_THAT(note, testing::HasSubstr("lack a parent")) << "left behind";
    }
    EXPECT_EQ(report.good_blocks, report.blocks);
    std::uint64_t bytes = 0;
    std::uint64_t files = 0;
    for (const auto& file : std::filesystem::directory_iterator(directory_ + "/segments")) {
      bytes += file.file_size();
      ++files;
    }
    EXPECT_EQ(files, report.segments);
    EXPECT_LE(bytes, OptionsOf(directory_, tight(), &clock_).nvme.capacity_bytes);
    EXPECT_LE(report.good_bytes, bytes);
  }

  std::set<BlockKey> IndexedKeys() const {
    std::set<BlockKey> keys;
    auto index = BlockIndex::OpenToCheck({.directory = directory_ + "/index"});
    EXPECT_TRUE(index.ok()) << index.status();
    if (!index.ok()) return keys;
    (void)(*index)->ForEachBlock([&](const BlockKey& key, const BlockEntry&) {
      keys.insert(key);
      return true;
    });
    return keys;
  }

  // A crash may keep REMOVALS from knowing the last evictions, so there may be more; nothing may be lost.
  void CheckRebuild() {
    const std::set<BlockKey> before = IndexedKeys();
    std::filesystem::remove_all(directory_ + "/index");
    FsckOptions options;
    options.directory = directory_;
    options.rebuild_index = true;
    const auto rebuilt = Fsck(options);
    ASSERT_TRUE(rebuilt.ok()) << rebuilt.status();
    const std::set<BlockKey> after = IndexedKeys();
    EXPECT_TRUE(std::includes(after.begin(), after.end(), before.begin(), before.end()));
    (void)Check();
  }

  // All space comes back: the store takes as much as a new one.
  void CheckAllSpaceComesBack() {
    const auto fill = [&](LocalStore& store) {
      DropRequest all;
      all.all = true;
      const auto dropped = DropNow(store, all);
      EXPECT_TRUE(dropped.ok()) << dropped.status();
      EXPECT_EQ(store.Stats()->nvme.blocks, 0u);
      EXPECT_EQ(store.Stats()->dram.blocks, 0u);
      const auto ns = *store.OpenNamespace(SpecOf(0), RetentionOf(0));
      // Two thirds of the tight capacity: less than what evicts.
      for (std::uint32_t seed = 1000; seed < 1032; ++seed) {
        EXPECT_TRUE(
            CommitChain(store, ns, TestTokens(seed, kBlocks * ns.spec.block_tokens), Durability::kDurable).ok());
      }
      EXPECT_EQ(store.Stats()->evicted_blocks_nvme, 0u);
      EXPECT_EQ(store.Stats()->nvme.blocks, 32 * kBlocks);
    };
    {
      auto store = LocalStore::Open(OptionsOf(directory_, tight(), &clock_));
      ASSERT_TRUE(store.ok()) << store.status();
      fill(**store);
      DropRequest all;
      all.all = true;
      ASSERT_TRUE(DropNow(**store, all).ok());
    }
    EXPECT_EQ(Check().blocks, 0u);
  }

  FakeClock clock_;
  std::string directory_;
  bool ever_opened_ = false;
  std::map<int, Expected> expected_;
};

INSTANTIATE_TEST_SUITE_P(Capacity, Crash, testing::Values(false, true),
                         [](const auto& test) { return test.param ? "Tight" : "Ample"; });

TEST_P(Crash, NothingAcknowledgedIsLostAndNothingIsHalfThere) {
  const std::uint64_t seed = TestSeed();
  std::mt19937_64 random(seed);
  const auto rounds = static_cast<int>((FromEnvironment("KVIST_CRASH_ROUNDS", 25) + 1) / 2);
  std::unique_ptr<TestDirectory> place;
  for (int round = 0; round < rounds && !HasFailure(); ++round) {
    SCOPED_TRACE(testing::Message() << "KVIST_SEED=" << seed << " round " << round);
    if (round % kRoundsPerDirectory == 0) {
      // Most in memory; some on the disk, with its other timing and O_DIRECT.
      const bool on_disk = round / kRoundsPerDirectory % 3 == 2;
      place = on_disk ? std::make_unique<TestDirectory>() : std::make_unique<TestDirectory>(kMemoryRoot);
      directory_ = place->path() + "/store";
      expected_.clear();
      ever_opened_ = false;
    }
    RunAndKill(random);
    if (HasFailure()) return;
    CheckStore();
    if (round % 4 == 3) CheckRebuild();
    if ((round + 1) % kRoundsPerDirectory == 0) CheckAllSpaceComesBack();
  }
}

}  // namespace
}  // namespace kvist::crash
