// Bits flipped at random anywhere in a store's files: fsck finds every one that could matter, and its repair keeps
// exactly what is undamaged. KVIST_FSCK_FLIPS sets how many, KVIST_SEED where.
#include <random>

#include "cachestore/index/block_index.h"
#include "tests/cachestore/fsck/fsck_fixture.h"
#include "tests/environment.h"

namespace kvist {
namespace {

class FsckDamage : public FsckFixture {
 protected:
  static constexpr std::uint32_t kSeeds = 4;

  void Fill() {
    auto store = Open(store_path());
    for (const std::string tenant : {"a", "b"}) {
      for (std::uint32_t seed = 0; seed < kSeeds; ++seed) Commit(*store, tenant, seed);
    }
    // Reopened, so that the index has a table file besides its log.
    store.reset();
    store = Open(store_path());
    Commit(*store, "c", 9);
  }

  // Which blocks of each chain a hit may return if `damaged` are gone; all hits exact.
  void ExpectAllBut(const std::string& path, const std::set<BlockKey>& damaged) {
    auto store = Open(path);
    ASSERT_NE(store, nullptr);
    for (const std::string tenant : {"a", "b"}) {
      const Namespace ns = Ns(*store, tenant);
      for (std::uint32_t seed = 0; seed < kSeeds; ++seed) {
        const auto keys = hasher_->Chain(ns.id, TestChain(seed, kBlocks), SmallSpec(tenant).block_tokens);
        std::size_t expected = 0;
        while (expected < keys.size() && !damaged.contains(keys[expected])) ++expected;
        EXPECT_EQ(Hits(*store, tenant, seed), expected) << tenant << seed;
      }
    }
    EXPECT_EQ(store->Stats()->corrupt_blocks, 0u);
  }

  void LoadHasher() {
    const auto posix = NewPosixFileSystem();
    const auto secret = ReadSecret(*posix, StoreDirectory{.path = store_path(), .lock = nullptr});
    ASSERT_TRUE(secret.ok());
    hasher_ = std::make_unique<KeyHasher>(*secret);
  }

  std::unique_ptr<KeyHasher> hasher_;
};

TEST_F(FsckDamage, EveryFlipInALiveRecordIsFoundAndCostsThatBlockOnly) {
  Fill();
  LoadHasher();
  const std::uint64_t seed = TestSeed();
  SCOPED_TRACE(testing::Message() << "KVIST_SEED=" << seed);
  std::mt19937_64 random(seed);
  const auto index = IndexOf(store_path());
  const std::vector<std::pair<BlockKey, BlockEntry>> entries(index.begin(), index.end());
  for (std::uint64_t i = 0; i < FromEnvironment("KVIST_FSCK_FLIPS", 30) && !HasFailure(); ++i) {
    CopyStore();
    const auto& [key, entry] = entries[random() % entries.size()];
    const std::uint64_t offset = entry.extent.offset + random() % entry.record_bytes;
    FlipBit(copy_path() + "/segments/" + SegmentFileName(entry.extent.segment), offset, random() % 8);
    const FsckReport found = Check(copy_path());
    ASSERT_EQ(found.problems_total, 1u) << offset << "\n" << Show(found);
    EXPECT_EQ(found.problems[0].block, key);
    const bool without_index = i % 3 == 0;
    if (without_index) std::filesystem::remove_all(copy_path() + "/index");
    (void)Check(copy_path(), /*repair=*/true);
    const FsckReport after = Check(copy_path());
    EXPECT_EQ(after.problems_total, 0u) << Show(after);
    ExpectAllBut(copy_path(), {key});
  }
}

// LOCK and what RocksDB writes for people or never reads again hold no data: a flip there changes nothing.
bool HoldsData(const std::filesystem::path& path) {
  const std::string name = path.filename();
  return name != "LOCK" && name != "IDENTITY" && !name.starts_with("LOG") && !name.starts_with("OPTIONS");
}

TEST_F(FsckDamage, EveryFlipInTheIndexAndTheSmallFilesIsFoundAndCostsNothing) {
  Fill();
  LoadHasher();
  const std::uint64_t seed = TestSeed();
  SCOPED_TRACE(testing::Message() << "KVIST_SEED=" << seed);
  std::mt19937_64 random(seed);
  std::vector<std::filesystem::path> files;
  for (const auto& e : std::filesystem::recursive_directory_iterator(store_path())) {
    if (e.is_regular_file() && e.file_size() > 0 && HoldsData(e.path()) &&
        e.path().parent_path().filename() != "segments") {
      files.push_back(std::filesystem::relative(e.path(), store_path()));
    }
  }
  ASSERT_GE(files.size(), 9u);
  for (std::uint64_t i = 0; i < 2 * FromEnvironment("KVIST_FSCK_FLIPS", 30) && !HasFailure(); ++i) {
    CopyStore();
    const std::filesystem::path& file = files[i % files.size()];
    const std::string path = copy_path() + "/" + file.string();
    const std::uint64_t offset = random() % std::filesystem::file_size(path);
    const unsigned bit = random() % 8;
    SCOPED_TRACE(testing::Message() << file << " " << offset << " bit " << bit);
    FlipBit(path, offset, bit);
    EXPECT_GT(Check(copy_path()).problems_total, 0u);
    (void)Check(copy_path(), /*repair=*/true);
    const FsckReport after = Check(copy_path());
    EXPECT_EQ(after.problems_total, 0u) << Show(after);
    ExpectAllBut(copy_path(), {});
  }
}

TEST_F(FsckDamage, EveryTruncationAndDeletionIsFound) {
  Fill();
  LoadHasher();
  const auto index = IndexOf(store_path());
  std::vector<std::filesystem::path> files;
  for (const auto& e : std::filesystem::recursive_directory_iterator(store_path())) {
    if (e.is_regular_file() && e.file_size() > 0 && HoldsData(e.path()) && e.path().filename() != "CLEAN") {
      files.push_back(std::filesystem::relative(e.path(), store_path()));
    }
  }
  for (const std::filesystem::path& file : files) {
    for (const bool deleted : {false, true}) {
      SCOPED_TRACE(testing::Message() << file << (deleted ? " deleted" : " cut"));
      CopyStore();
      const std::string path = copy_path() + "/" + file.string();
      std::uint64_t kept = 0;
      if (deleted) {
        std::filesystem::remove(path);
      } else {
        std::filesystem::resize_file(path, kept = std::filesystem::file_size(path) / 2);
      }
      EXPECT_GT(Check(copy_path()).problems_total, 0u);
      (void)Check(copy_path(), /*repair=*/true);
      const FsckReport after = Check(copy_path());
      EXPECT_EQ(after.problems_total, 0u) << Show(after);
      std::set<BlockKey> damaged;
      for (const auto& [key, entry] : index) {
        if (SegmentFileName(entry.extent.segment) == file.filename() &&
            entry.extent.offset + entry.record_bytes > kept) {
          damaged.insert(key);
        }
      }
      ExpectAllBut(copy_path(), damaged);
    }
  }
}

}  // namespace
}  // namespace kvist
