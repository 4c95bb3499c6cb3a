// Each kind of damage by itself: what fsck says of it, and what is left after the repair.
#include "cachestore/fsck/fsck.h"

#include <random>

#include "cachestore/index/block_index.h"
#include "cachestore/tier/removal_log.h"
#include "cachestore/tier/store_files.h"
#include "tests/cachestore/fsck/fsck_fixture.h"

namespace kvist {
namespace {

using ::testing::HasSubstr;

class FsckTest : public FsckFixture {
 protected:
  // Three tenants with two chains each.
  void Fill() {
    auto store = Open(store_path());
    for (const std::string tenant : {"a", "b", "c"}) {
      for (std::uint32_t seed = 1; seed <= 2; ++seed) Commit(*store, tenant, seed);
    }
  }
  void ExpectAll(const std::string& path, const std::set<std::string>& without = {}) {
    auto store = Open(path);
    ASSERT_NE(store, nullptr);
    for (const std::string tenant : {"a", "b", "c"}) {
      for (std::uint32_t seed = 1; seed <= 2; ++seed) {
        EXPECT_EQ(Hits(*store, tenant, seed), without.contains(tenant) ? 0 : kBlocks) << tenant << seed;
      }
    }
  }
  // Damage that a repair undoes entirely.
  void ExpectHealed() {
    const FsckReport found = Check(store_path());
    EXPECT_GT(found.problems_total, 0u);
    EXPECT_FALSE(found.repaired);
    EXPECT_EQ(Check(store_path()).problems_total, found.problems_total) << "looking must change nothing";
    const FsckReport repaired = Check(store_path(), /*repair=*/true);
    EXPECT_TRUE(repaired.repaired);
    EXPECT_EQ(repaired.problems_total, found.problems_total);
    const FsckReport after = Check(store_path());
    EXPECT_EQ(after.problems_total, 0u) << Show(after);
    ExpectAll(store_path());
    EXPECT_EQ(Check(store_path()).problems_total, 0u);
  }
};

TEST_F(FsckTest, AWholeStoreIsClean) {
  Fill();
  const FsckReport report = Check(store_path());
  EXPECT_EQ(report.problems_total, 0u) << Show(report);
  EXPECT_THAT(report.notes, testing::IsEmpty());
  EXPECT_EQ(report.blocks, 6 * kBlocks);
  EXPECT_EQ(report.good_blocks, 6 * kBlocks);
  EXPECT_EQ(report.namespaces, 3u);
  EXPECT_EQ(report.unreachable_blocks, 0u);
  ExpectAll(store_path());
}

TEST_F(FsckTest, RefusesAStoreInUseAndWhatIsNone) {
  FsckOptions options;
  options.directory = store_path();
  EXPECT_TRUE(absl::IsNotFound(Fsck(options).status())) << Fsck(options).status();
  auto store = Open(store_path());
  const absl::Status in_use = Fsck(options).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(in_use)) << in_use;
  EXPECT_THAT(std::string(in_use.message()), HasSubstr("in use"));
  store.reset();
  std::ofstream(store_path() + "/FORMAT") << "kvist store, format 3\n";
  options.repair = true;
  const absl::Status newer = Fsck(options).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(newer)) << newer;
  std::ifstream in(store_path() + "/FORMAT");
  EXPECT_EQ(std::string((std::istreambuf_iterator<char>(in)), {}), "kvist store, format 3\n");
}

TEST_F(FsckTest, RestoresEachSmallFileFromTheRest) {
  Fill();
  for (const std::string name : {"FORMAT", "SECRET", "REMOVALS", "namespaces"}) {
    for (const bool gone : {false, true}) {
      SCOPED_TRACE(name + (gone ? " gone" : " damaged"));
      std::string path = store_path() + "/" + name;
      if (name == "namespaces" && !gone) path = std::filesystem::directory_iterator(path)->path();
      if (gone) {
        std::filesystem::remove_all(path);
      } else {
        std::filesystem::resize_file(path, std::filesystem::file_size(path) / 2);
      }
      ExpectHealed();
    }
  }
}

TEST_F(FsckTest, RebuildsAnIndexThatIsGone) {
  Fill();
  std::filesystem::remove_all(store_path() + "/index");
  EXPECT_TRUE(absl::IsDataLoss(TryOpen(store_path()).status()));
  ExpectHealed();
}

TEST_F(FsckTest, WithoutSecretAndIndexThereIsNothingToRepair) {
  Fill();
  std::filesystem::remove_all(store_path() + "/index");
  std::filesystem::remove(store_path() + "/SECRET");
  FsckOptions options;
  options.directory = store_path();
  options.repair = true;
  const absl::Status status = Fsck(options).status();
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("backup"));
}

TEST_F(FsckTest, AMissingSegmentTakesItsBlocksOnly) {
  Fill();
  const auto before = IndexOf(store_path());
  const std::string path = store_path() + "/segments/seg-00000001";
  std::filesystem::remove(path);
  const FsckReport found = Check(store_path());
  ASSERT_EQ(found.problems_total, 1u) << Show(found);
  EXPECT_EQ(found.problems[0].path, path);
  EXPECT_TRUE(Check(store_path(), /*repair=*/true).repaired);
  EXPECT_EQ(Check(store_path()).problems_total, 0u);
  const auto after = IndexOf(store_path());
  std::size_t elsewhere = 0;
  for (const auto& [key, entry] : before) elsewhere += entry.extent.segment != 1 ? 1 : 0;
  EXPECT_GT(elsewhere, 0u);
  EXPECT_EQ(after.size(), elsewhere);
  EXPECT_NE(Open(store_path()), nullptr);
}

TEST_F(FsckTest, ATruncatedSegmentKeepsWhatIsBeforeTheCut) {
  Fill();
  const std::string path = store_path() + "/segments/seg-00000001";
  std::filesystem::resize_file(path, 5 * 8192 + 100);
  EXPECT_GT(Check(store_path()).problems_total, 1u);
  (void)Check(store_path(), /*repair=*/true);
  const FsckReport after = Check(store_path());
  EXPECT_EQ(after.problems_total, 0u) << Show(after);
  std::size_t kept = 0;
  for (const auto& [key, entry] : IndexOf(store_path())) kept += entry.extent.segment == 1 ? 1 : 0;
  EXPECT_EQ(kept, 5u);
  auto store = Open(store_path());
  ASSERT_NE(store, nullptr);
  Commit(*store, "a", 1);  // and it goes on
  EXPECT_EQ(Hits(*store, "a", 1), kBlocks);
}

TEST_F(FsckTest, LeavesForeignFilesAloneAndRemovesLeftovers) {
  Fill();
  for (const std::string name : {"thesis.tex", "segments/seg-abc", "namespaces/readme", "SECRET.tmp",
                                 "namespaces/0000.tmp", "segments/probe.tmp"}) {
    std::ofstream(store_path() + "/" + name) << "x";
  }
  std::filesystem::create_directory(store_path() + "/index.tmp");
  const FsckReport report = Check(store_path(), /*repair=*/true);
  EXPECT_EQ(report.problems_total, 0u) << Show(report);
  EXPECT_EQ(report.notes.size(), 7u) << Show(report);
  EXPECT_TRUE(std::filesystem::exists(store_path() + "/thesis.tex"));
  EXPECT_FALSE(std::filesystem::exists(store_path() + "/SECRET.tmp"));
  EXPECT_FALSE(std::filesystem::exists(store_path() + "/index.tmp"));
  EXPECT_EQ(Check(store_path()).notes.size(), 3u);
}

TEST_F(FsckTest, AnIndexThatLostItsTailIsFoundAfterACleanClose) {
  Fill();
  std::string log;
  for (const auto& e : std::filesystem::directory_iterator(store_path() + "/index")) {
    if (e.path().extension() == ".log" && e.file_size() > 0) log = e.path();
  }
  ASSERT_FALSE(log.empty());
  std::filesystem::resize_file(log, std::filesystem::file_size(log) - 10);
  ExpectHealed();
}

TEST_F(FsckTest, RebuildsTheSameIndexAfterEvictionsCleaningAndRemovals) {
  segments_ = 8;  // 1 MiB: what follows takes several times that
  std::map<BlockKey, BlockEntry> before;
  {
    auto store = Open(store_path());
    std::mt19937_64 random(5);
    for (std::uint32_t seed = 0; seed < 60; ++seed) {
      Commit(*store, seed % 3 == 0 ? "a" : "b", seed);
      if (seed >= 10 && seed % 2 == 0) (void)Hits(*store, "b", seed - static_cast<std::uint32_t>(random() % 8));
      if (seed == 45) {
        DropRequest drop;
        drop.tenant = "a";
        ASSERT_TRUE(DropNow(*store, drop).ok());
      }
    }
    EXPECT_GT(store->Stats()->evicted_blocks_nvme, 50u);
  }
  before = IndexOf(store_path());
  ASSERT_GT(before.size(), 50u);
  CopyStore();
  // With the old index at hand all of it is the same, last uses included.
  EXPECT_TRUE(Check(copy_path(), false, /*rebuild=*/true).index_rebuilt);
  EXPECT_EQ(IndexOf(copy_path()), before);
  // Without, all but those.
  std::filesystem::remove_all(store_path() + "/index");
  EXPECT_TRUE(Check(store_path(), false, /*rebuild=*/true).index_rebuilt);
  auto after = IndexOf(store_path());
  EXPECT_EQ(after.size(), before.size());
  for (auto& [key, entry] : after) {
    ASSERT_TRUE(before.contains(key)) << key.ToHex();
    entry.used = before.at(key).used;
    EXPECT_EQ(entry, before.at(key));
  }
  EXPECT_EQ(Check(store_path()).problems_total, 0u);
  auto store = Open(store_path());
  ASSERT_NE(store, nullptr);
  EXPECT_EQ(store->Stats()->nvme.blocks, before.size());
  EXPECT_EQ(store->Stats()->corrupt_blocks, 0u);
}

TEST_F(FsckTest, WhatATenantDroppedDoesNotComeBackWithTheIndex) {
  Fill();
  {
    auto store = Open(store_path());
    DropRequest drop;
    drop.tenant = "b";
    const auto dropped = DropNow(*store, drop);
    ASSERT_TRUE(dropped.ok()) << dropped.status();
    EXPECT_EQ(dropped->blocks, 2 * kBlocks);
  }
  // Not by REMOVALS alone: that one is not synced.
  std::filesystem::remove(store_path() + "/REMOVALS");
  std::filesystem::remove_all(store_path() + "/index");
  (void)Check(store_path(), /*repair=*/true, /*rebuild=*/true);
  ExpectAll(store_path(), {"b"});
  // What is stored after a drop counts again.
  {
    auto store = Open(store_path());
    Commit(*store, "b", 1);
    Commit(*store, "b", 2);
  }
  std::filesystem::remove_all(store_path() + "/index");
  (void)Check(store_path(), /*repair=*/true);
  ExpectAll(store_path());
}

TEST_F(FsckTest, ADropThatACrashInterruptedIsCompleted) {
  Fill();
  const KeyHasher hasher(*ReadSecret(*NewPosixFileSystem(), StoreDirectory{.path = store_path(), .lock = nullptr}));
  const NamespaceId id = hasher.Root(SmallSpec("b").Canonical());
  // The first step of a drop: the file says so, the index does not yet.
  const auto posix = NewPosixFileSystem();
  const StoreDirectory directory{.path = store_path(), .lock = nullptr};
  auto entry = ReadNamespaceFile(*posix, directory, id);
  ASSERT_TRUE(entry.ok()) << entry.status();
  entry->dropped_through = 1000;
  ASSERT_EQ(WriteNamespaceFile(*posix, directory, id, *entry), absl::OkStatus());
  const FsckReport report = Check(store_path());
  EXPECT_EQ(report.problems_total, 0u) << Show(report);
  CopyStore();
  ExpectAll(store_path(), {"b"});
  std::filesystem::remove_all(copy_path() + "/index");
  (void)Check(copy_path(), /*repair=*/true);
  ExpectAll(copy_path(), {"b"});
}

TEST_F(FsckTest, AnUpgradedStoreDoesNotBringBackWhatFormat1Removed) {
  const std::string command = "tar -xzf " FORMAT1_ARCHIVE " -C " + directory_.path();
  ASSERT_EQ(std::system(command.c_str()), 0);
  FsckOptions options;
  options.directory = store_path();
  EXPECT_TRUE(absl::IsFailedPrecondition(Fsck(options).status())) << Fsck(options).status();
  ASSERT_NE(Open(store_path()), nullptr);
  const auto before = IndexOf(store_path());
  EXPECT_EQ(before.size(), 8u);  // of "kept" and "pinned"; the segments hold those of "dropped" too
  EXPECT_EQ(Check(store_path()).problems_total, 0u);
  std::filesystem::remove_all(store_path() + "/index");
  (void)Check(store_path(), /*repair=*/true);
  const auto after = IndexOf(store_path());
  EXPECT_EQ(after.size(), before.size());
  for (const auto& [key, entry] : after) EXPECT_TRUE(before.contains(key));
}

TEST_F(FsckTest, ARebuildKeepsPinsAndExpiriesWhereTheIndexCanBeRead) {
  Fill();
  {
    auto store = Open(store_path());
    const Namespace ns = Ns(*store, "a");
    const auto pinned = Await<std::size_t>(
        [&](Done<std::size_t> done) { store->Pin(ns.id, TestChain(1, kBlocks), {}, std::move(done)); });
    ASSERT_EQ(*pinned, kBlocks);
    clock_.Advance(absl::Hours(5));
    EXPECT_EQ(Hits(*store, "b", 1), kBlocks);
  }
  const auto before = IndexOf(store_path());
  (void)Check(store_path(), false, /*rebuild=*/true);
  EXPECT_EQ(IndexOf(store_path()), before);
}

}  // namespace
}  // namespace kvist
