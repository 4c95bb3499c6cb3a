// Stores with NVMe directories of their own, and one shared folder.
#include <fstream>
#include <optional>

#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/notification.h"
#include "cachestore/local_store.h"
#include "tests/cachestore/shared/shared_fixture.h"
#include "tests/cachestore/shared/stalled_file_system.h"

namespace kvist {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class SharedStoreTest : public ::testing::Test {
 protected:
  ~SharedStoreTest() override { disk_->Release(); }

  LocalStoreOptions Options(const std::string& name) {
    LocalStoreOptions options;
    options.nvme.directory = directory_.path() + "/" + name;
    options.nvme.capacity_bytes = 64 << 20;
    options.nvme.segment_bytes = 4 << 20;
    options.dram_bytes = 8 << 20;
    options.clock = &clock_;
    options.shared.folder.directory = shared_.path();
    options.shared.folder.file_system = disk_;
    options.shared.folder.bucket_list_age = absl::ZeroDuration();
    options.shared.folder.close_timeout = absl::Milliseconds(20);
    options.shared.read = {.timeout = absl::Minutes(5), .chain_timeout = absl::Minutes(5)};
    options.shared.drain_timeout = absl::Minutes(5);
    return options;
  }
  std::unique_ptr<LocalStore> Open(const LocalStoreOptions& options) {
    auto store = LocalStore::Open(options);
    EXPECT_TRUE(store.ok()) << store.status();
    return store.ok() ? *std::move(store) : nullptr;
  }
  std::unique_ptr<LocalStore> Open(const std::string& name) { return Open(Options(name)); }
  static Namespace OpenNs(LocalStore& store, const NamespaceSpec& spec = TestSpec()) {
    return store.OpenNamespace(spec, {}).value();
  }
  static void FlushShared(LocalStore& store) {
    ASSERT_TRUE(FlushNow(store).ok());
    ASSERT_TRUE(AwaitStatus([&](DoneStatus done) { store.FlushShared({}, std::move(done)); }).ok());
  }
  // Puts a chain and waits until it is in the shared folder.
  void Fill(LocalStore& store, const std::vector<TokenId>& tokens) {
    ASSERT_TRUE(CommitChain(store, OpenNs(store), tokens).ok());
    FlushShared(store);
  }
  static std::vector<Tier> Sources(const Lease& lease) {
    std::vector<Tier> sources;
    for (const Lease::Block& block : lease.blocks()) sources.push_back(block.source);
    return sources;
  }
  std::vector<std::string> Objects() const { return FilesBelow(shared_.path() + "/objects"); }

  TestDirectory directory_;
  TestDirectory shared_;
  FakeClock clock_;
  std::shared_ptr<StalledFileSystem> disk_ = std::make_shared<StalledFileSystem>();
};

TEST_F(SharedStoreTest, WhatOneStoreComputedAnotherHits) {
  auto a = Open("a");
  auto b = Open("b");
  const Namespace ns = OpenNs(*a);
  EXPECT_EQ(OpenNs(*b).id, ns.id) << "one secret, one namespace";
  const auto tokens = TestChain(1, 20);
  Fill(*a, tokens);
  EXPECT_EQ(Objects().size(), 20u);

  const auto match = MatchNow(*b, ns, tokens);
  ASSERT_TRUE(match.ok());
  EXPECT_EQ(match->blocks(), 20u);
  EXPECT_THAT(match->tiers, Each(Tier::kShared));
  auto lease = AcquireNow(*b, ns, tokens);
  ASSERT_TRUE(lease.ok()) << lease.status();
  ASSERT_EQ(lease->blocks().size(), 20u);
  EXPECT_THAT(Sources(*lease), Each(Tier::kShared));
  EXPECT_TRUE(LeaseIsExact(*lease, ns, tokens));
  const StoreStats stats = *b->Stats();
  EXPECT_EQ(stats.shared.hit_blocks, 20u);
  EXPECT_EQ(stats.miss_blocks, 0u);
  EXPECT_GT(stats.shared.read_bytes, 20 * ns.spec.payload_bytes());
  EXPECT_EQ(stats.shared.written_blocks, 0u);

  // Now b has its own copies, in DRAM and, after a restart without the folder, on NVMe.
  auto again = AcquireNow(*b, ns, tokens);
  EXPECT_THAT(Sources(*again), Each(Tier::kDram));
  *lease = Lease();
  *again = Lease();
  FlushShared(*b);
  EXPECT_EQ(Objects().size(), 20u) << "nothing was written twice";
  EXPECT_EQ(b->Stats()->shared.written_blocks, 0u);
  b.reset();
  LocalStoreOptions alone = Options("b");
  alone.shared = {};
  b = Open(alone);
  const auto from_nvme = AcquireNow(*b, ns, tokens);
  ASSERT_EQ(from_nvme->blocks().size(), 20u);
  EXPECT_THAT(Sources(*from_nvme), Each(Tier::kNvme));
  EXPECT_TRUE(LeaseIsExact(*from_nvme, ns, tokens));
}

TEST_F(SharedStoreTest, AClosedStoresBlocksAreThereForOthers) {
  const auto tokens = TestChain(1, 20);
  NamespaceId id;
  {
    auto a = Open("a");
    id = OpenNs(*a).id;
    ASSERT_TRUE(CommitChain(*a, OpenNs(*a), tokens).ok());
  }  // nobody flushed: closing does
  EXPECT_EQ(Objects().size(), 20u);
  std::filesystem::remove_all(directory_.path() + "/a");
  auto b = Open("b");
  const Namespace ns = OpenNs(*b);
  EXPECT_EQ(ns.id, id);
  const auto lease = AcquireNow(*b, ns, tokens);
  ASSERT_EQ(lease->blocks().size(), 20u);
  EXPECT_TRUE(LeaseIsExact(*lease, ns, tokens));
}

TEST_F(SharedStoreTest, AChainGoesOnWhereverItsBlocksAre) {
  const auto tokens = TestChain(1, 12);
  const auto longer = TestChain(1, 16);
  ASSERT_TRUE(std::equal(tokens.begin(), tokens.end(), longer.begin()));
  auto a = Open("a");
  auto b = Open("b");
  const Namespace ns = OpenNs(*a);
  OpenNs(*b);
  // b computed the first four itself, a all twelve.
  Fill(*b, {tokens.begin(), tokens.begin() + 4 * 16});
  Fill(*a, tokens);
  EXPECT_EQ(MatchedBlocks(*b, ns, longer), 12u);
  auto lease = AcquireNow(*b, ns, longer);
  ASSERT_EQ(lease->blocks().size(), 12u);
  EXPECT_TRUE(LeaseIsExact(*lease, ns, tokens));
  for (std::size_t i = 0; i < 12; ++i) EXPECT_EQ(lease->blocks()[i].source, i < 4 ? Tier::kDram : Tier::kShared) << i;
  EXPECT_EQ(b->Stats()->miss_blocks, 4u);
  // And b goes on from there.
  ASSERT_TRUE(CommitBlock(*b, ns, lease->blocks()[11].key, longer, 12, Durability::kDurable).ok());
  FlushShared(*b);
  clock_.Advance(absl::Seconds(10));
  EXPECT_EQ(MatchedBlocks(*a, ns, longer), 13u);
}

TEST_F(SharedStoreTest, AGapHereIsFilledFromTheSharedTier) {
  auto a = Open("a");
  const Namespace ns = OpenNs(*a);
  const auto tokens = TestChain(1, 8);
  Fill(*a, tokens);
  // Damage on NVMe: the block is dropped here, with what follows it still resident.
  a.reset();
  {
    std::fstream segment(directory_.path() + "/a/segments/seg-00000001",
                         std::ios::in | std::ios::out | std::ios::binary);
    std::string bytes(4 << 20, '\0');
    segment.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    std::size_t record = 0;
    for (int found = 0; found < 4; ++record) {
      record = bytes.find("KVISTBLK", record);
      ASSERT_NE(record, std::string::npos);
      if (++found == 4) break;
    }
    segment.clear();
    segment.seekp(static_cast<std::streamoff>(record) + 5000);
    segment.write("damage", 6);
  }
  a = Open("a");
  for (int again = 0; again < 2; ++again) {
    const auto lease = AcquireNow(*a, ns, tokens);
    ASSERT_EQ(lease->blocks().size(), 8u);
    EXPECT_TRUE(LeaseIsExact(*lease, ns, tokens));
  }
  EXPECT_EQ(a->Stats()->shared.hit_blocks, 1u);
  EXPECT_EQ(a->Stats()->corrupt_blocks, 1u);
}

TEST_F(SharedStoreTest, ADamagedObjectEndsTheChainAndIsWrittenAnew) {
  auto a = Open("a");
  const Namespace ns = OpenNs(*a);
  const auto tokens = TestChain(1, 6);
  const auto keys = CommitChain(*a, ns, tokens);
  FlushShared(*a);
  for (const std::string& file : Objects()) {
    if (!file.ends_with((*keys)[3].ToHex())) continue;
    const auto modified = std::filesystem::last_write_time(file);
    std::fstream object(file, std::ios::in | std::ios::out | std::ios::binary);
    object.seekp(9000);
    object.write("damage", 6);
    object.close();
    std::filesystem::last_write_time(file, modified);
  }
  auto b = Open("b");
  OpenNs(*b);
  auto lease = AcquireNow(*b, ns, tokens);
  ASSERT_EQ(lease->blocks().size(), 3u);
  EXPECT_TRUE(LeaseIsExact(*lease, ns, tokens));
  EXPECT_EQ(b->Stats()->shared.corrupt_blocks, 1u);
  EXPECT_EQ(b->Stats()->corrupt_blocks, 1u);
  ASSERT_TRUE(CommitChain(*b, ns, tokens).ok());
  FlushShared(*b);
  EXPECT_EQ(Objects().size(), 6u);
  auto c = Open("c");
  OpenNs(*c);
  lease = AcquireNow(*c, ns, tokens);
  ASSERT_EQ(lease->blocks().size(), 6u);
  EXPECT_TRUE(LeaseIsExact(*lease, ns, tokens));
}

TEST_F(SharedStoreTest, ConcurrentMissesFetchABlockOnce) {
  auto a = Open("a");
  const Namespace ns = OpenNs(*a);
  const auto tokens = TestChain(1, 10);
  Fill(*a, tokens);
  auto b = Open("b");
  OpenNs(*b);
  constexpr int kCallers = 8;
  std::vector<Lease> leases(kCallers);
  absl::BlockingCounter completed(kCallers);
  for (int i = 0; i < kCallers; ++i) {
    b->Acquire(ns.id, tokens, 10, {}, [&, i](absl::StatusOr<Lease> lease) {
      if (lease.ok()) leases[static_cast<std::size_t>(i)] = *std::move(lease);
      completed.DecrementCount();
    });
  }
  completed.Wait();
  for (const Lease& lease : leases) {
    ASSERT_EQ(lease.blocks().size(), 10u);
    EXPECT_TRUE(LeaseIsExact(lease, ns, tokens));
  }
  const std::uint64_t record = RecordShape{16, 4, 16 << 10}.record_bytes();
  EXPECT_EQ(b->Stats()->shared.read_bytes, 10 * record);
  EXPECT_EQ(b->Stats()->dram.blocks, 10u);
}

TEST_F(SharedStoreTest, AMissIsRememberedForAWhileOnly) {
  auto a = Open("a");
  auto b = Open("b");
  const Namespace ns = OpenNs(*a);
  OpenNs(*b);
  const auto tokens = TestChain(1, 4);
  EXPECT_EQ(MatchedBlocks(*b, ns, tokens), 0u);
  Fill(*a, tokens);
  disk_->Stall();
  EXPECT_EQ(MatchedBlocks(*b, ns, tokens), 0u) << "the folder isn't even asked";
  EXPECT_EQ(AcquireNow(*b, ns, tokens)->blocks().size(), 0u);
  disk_->Release();
  clock_.Advance(absl::Seconds(4));
  EXPECT_EQ(MatchedBlocks(*b, ns, tokens), 4u);
  EXPECT_EQ(AcquireNow(*b, ns, tokens)->blocks().size(), 4u);
}

TEST_F(SharedStoreTest, AHangingFolderIsAMissAndThenCostsNothing) {
  const auto tokens = TestChain(1, 10);
  Namespace ns;
  {
    auto a = Open("a");
    ns = OpenNs(*a);
    Fill(*a, tokens);
  }
  LocalStoreOptions options = Options("b");
  options.shared.read = {.timeout = absl::Milliseconds(20), .absent_age = absl::ZeroDuration()};
  options.shared.folder.write_timeout = absl::Milliseconds(20);
  options.shared.folder.health = {.timeouts_to_open = 2, .retry_first = absl::InfiniteDuration()};
  options.shared.drain_timeout = absl::Milliseconds(20);
  auto b = Open(options);
  OpenNs(*b);
  disk_->Stall();
  // The engine gets misses, puts what it computed, hits that; and none of it waits for the folder for long.
  for (std::uint32_t seed = 1; seed < 6; ++seed) {
    const auto other = TestChain(seed, 4);
    const auto lease = AcquireNow(*b, ns, other);
    ASSERT_TRUE(lease.ok()) << lease.status();
    EXPECT_EQ(lease->blocks().size(), 0u);
    ASSERT_TRUE(CommitChain(*b, ns, other, Durability::kDurable).ok());
    EXPECT_EQ(MatchedBlocks(*b, ns, other), 4u);
  }
  const StoreStats stats = *b->Stats();
  EXPECT_FALSE(stats.shared.available);
  EXPECT_GE(stats.shared.timeouts, 2u);
  b.reset();  // nor does closing
  disk_->Release();
}

TEST_F(SharedStoreTest, AFolderThatHangsInTheMiddleOfAChainYieldsItsBeginning) {
  auto a = Open("a");
  const Namespace ns = OpenNs(*a);
  const auto tokens = TestChain(1, 8);
  const auto keys = CommitChain(*a, ns, tokens);
  FlushShared(*a);
  LocalStoreOptions options = Options("b");
  options.shared.read.timeout = absl::Milliseconds(200);
  auto b = Open(options);
  OpenNs(*b);
  disk_->Stall("/" + (*keys)[5].ToHex());
  auto lease = AcquireNow(*b, ns, tokens);
  ASSERT_TRUE(lease.ok());
  EXPECT_LE(lease->blocks().size(), 5u);
  EXPECT_TRUE(LeaseIsExact(*lease, ns, tokens));
  *lease = Lease();
  disk_->Release();
  lease = AcquireNow(*b, ns, tokens);
  EXPECT_EQ(lease->blocks().size(), 8u);
  EXPECT_TRUE(LeaseIsExact(*lease, ns, tokens));
}

TEST_F(SharedStoreTest, AnAcquiresOwnDeadlineHoldsToo) {
  auto b = Open("b");
  const Namespace ns = OpenNs(*b);
  disk_->Stall();
  const auto tokens = TestChain(1, 4);
  const auto lease = Await<Lease>([&](Done<Lease> done) {
    b->Acquire(ns.id, tokens, 4, {.timeout = absl::Milliseconds(20), .cancel = {}}, std::move(done));
  });
  EXPECT_TRUE(absl::IsDeadlineExceeded(lease.status())) << lease.status();
  const auto match = Await<PrefixMatch>([&](Done<PrefixMatch> done) {
    b->Match(ns.id, tokens, {.timeout = absl::Milliseconds(20), .cancel = {}}, std::move(done));
  });
  EXPECT_TRUE(absl::IsDeadlineExceeded(match.status())) << match.status();
  disk_->Release();
}

TEST_F(SharedStoreTest, AVanishedFolderIsAMissAndComesBack) {
  auto a = Open("a");
  const Namespace ns = OpenNs(*a);
  const auto tokens = TestChain(1, 4);
  Fill(*a, tokens);
  auto b = Open("b");
  OpenNs(*b);
  std::filesystem::rename(shared_.path(), shared_.path() + "-away");
  const auto missed = AcquireNow(*b, ns, tokens);
  ASSERT_TRUE(missed.ok());
  EXPECT_EQ(missed->blocks().size(), 0u);
  const auto others = TestChain(2, 4);
  ASSERT_TRUE(CommitChain(*b, ns, others).ok());
  FlushShared(*b);
  EXPECT_EQ(b->Stats()->shared.write_back_dropped, 4u);
  EXPECT_FALSE(std::filesystem::exists(shared_.path()));
  std::filesystem::rename(shared_.path() + "-away", shared_.path());
  clock_.Advance(absl::Seconds(10));
  EXPECT_EQ(AcquireNow(*b, ns, tokens)->blocks().size(), 4u);
  // What was dropped meanwhile is offered again when it is used.
  EXPECT_EQ(AcquireNow(*b, ns, others)->blocks().size(), 4u);
  FlushShared(*b);
  EXPECT_EQ(MatchedBlocks(*a, ns, others), 4u);
}

TEST_F(SharedStoreTest, AUseKeepsABlockAliveForOthers) {
  auto a = Open("a");
  const Namespace ns = OpenNs(*a);
  const auto tokens = TestChain(1, 4);
  Fill(*a, tokens);
  clock_.Advance(absl::Hours(50));
  ASSERT_EQ(AcquireNow(*a, ns, tokens)->blocks().size(), 4u);  // from DRAM
  FlushShared(*a);
  clock_.Advance(absl::Hours(50));
  ASSERT_TRUE(a->Sweep().ok());
  auto b = Open("b");
  OpenNs(*b);
  EXPECT_EQ(AcquireNow(*b, ns, tokens)->blocks().size(), 4u);
  FlushShared(*b);
  clock_.Advance(absl::Hours(73));
  auto c = Open("c");
  OpenNs(*c);
  EXPECT_EQ(MatchedBlocks(*c, ns, tokens), 0u);
}

TEST_F(SharedStoreTest, ADropReachesTheSharedFolder) {
  auto a = Open("a");
  const Namespace ns = OpenNs(*a);
  NamespaceSpec other_spec = TestSpec();
  other_spec.tenant = "tenant-b";
  const Namespace other = OpenNs(*a, other_spec);
  const auto tokens = TestChain(1, 6);
  ASSERT_TRUE(CommitChain(*a, ns, tokens).ok());
  ASSERT_TRUE(CommitChain(*a, other, tokens).ok());
  FlushShared(*a);
  ASSERT_EQ(Objects().size(), 12u);
  const auto dropped = DropNow(*a, {.ns = {}, .tenant = "tenant-a"});
  ASSERT_TRUE(dropped.ok()) << dropped.status();
  EXPECT_EQ(dropped->blocks, 6u);
  EXPECT_EQ(Objects().size(), 6u);
  clock_.Advance(absl::Seconds(10));
  EXPECT_EQ(MatchedBlocks(*a, ns, tokens), 0u);
  EXPECT_EQ(MatchedBlocks(*a, other, tokens), 6u);
  auto b = Open("b");
  OpenNs(*b);
  OpenNs(*b, other_spec);
  EXPECT_EQ(MatchedBlocks(*b, ns, tokens), 0u);
  EXPECT_EQ(AcquireNow(*b, other, tokens)->blocks().size(), 6u);
  // The namespace goes on as ever.
  Fill(*a, tokens);
  EXPECT_EQ(Objects().size(), 12u);
}

TEST_F(SharedStoreTest, ADropThatCannotReachTheFolderSaysSo) {
  LocalStoreOptions options = Options("a");
  options.shared.folder.drop_timeout = absl::Milliseconds(20);
  auto a = Open(options);
  const Namespace ns = OpenNs(*a);
  const auto tokens = TestChain(1, 6);
  Fill(*a, tokens);
  disk_->Stall("objects");
  const auto dropped = DropNow(*a, {.ns = ns.id, .tenant = {}});
  EXPECT_TRUE(absl::IsUnavailable(dropped.status()));
  EXPECT_THAT(std::string(dropped.status().message()), HasSubstr("dropped here (6 blocks)"));
  EXPECT_EQ(a->Stats()->dram.blocks, 0u);
  EXPECT_EQ(a->Stats()->nvme.blocks, 0u);
  disk_->Release();
  EXPECT_TRUE(DropNow(*a, {.ns = ns.id, .tenant = {}}).ok());
  EXPECT_EQ(Objects().size(), 0u);
}

TEST_F(SharedStoreTest, AStoreOfItsOwnMakesAnEmptyFolderItsOwnAndRefusesAnothers) {
  LocalStoreOptions alone = Options("a");
  alone.shared = {};
  const auto tokens = TestChain(1, 4);
  NamespaceId id;
  {
    auto a = Open(alone);
    id = OpenNs(*a).id;
    ASSERT_TRUE(CommitChain(*a, OpenNs(*a), tokens, Durability::kDurable).ok());
  }
  auto a = Open("a");  // joins with what it has
  const Namespace ns = OpenNs(*a);
  EXPECT_EQ(ns.id, id);
  EXPECT_EQ(AcquireNow(*a, ns, tokens)->blocks().size(), 4u);
  FlushShared(*a);
  EXPECT_EQ(Objects().size(), 4u) << "used, so written";

  LocalStoreOptions other = Options("other");
  other.shared = {};
  Open(other).reset();
  const absl::Status refused = LocalStore::Open(Options("other")).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("empty directory"));
  EXPECT_NE(Open(other), nullptr) << "it was left alone";
}

TEST_F(SharedStoreTest, WithoutTheFolderAnExistingStoreOpensAndANewOneSaysWhy) {
  Open("a").reset();
  std::filesystem::rename(shared_.path(), shared_.path() + "-away");
  const absl::Status refused = LocalStore::Open(Options("new")).status();
  EXPECT_TRUE(absl::IsUnavailable(refused));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("mount it"));
  auto a = Open("a");
  ASSERT_NE(a, nullptr);
  const Namespace ns = OpenNs(*a);
  const auto tokens = TestChain(1, 4);
  ASSERT_TRUE(CommitChain(*a, ns, tokens, Durability::kDurable).ok());
  EXPECT_EQ(MatchedBlocks(*a, ns, tokens), 4u);
  EXPECT_FALSE(a->Stats()->shared.available);
  std::filesystem::rename(shared_.path() + "-away", shared_.path());
  EXPECT_EQ(AcquireNow(*a, ns, tokens)->blocks().size(), 4u);
  FlushShared(*a);
  EXPECT_EQ(Objects().size(), 4u) << "entered when it came";
}

}  // namespace
}  // namespace kvist
