// D10: a cache that grows past its cap on prompts that never come back. Whatever fills a tier (commits, hits that bring
// blocks up, blocks of several sizes, leases), it reports no more than its capacity, and the process levels off.
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/conformance/local_store_factory.h"

namespace kvist {
namespace {

constexpr std::uint32_t kPrompts = 2'000;
constexpr StoreSetup kSmall{.dram_bytes = 1 << 20, .nvme_bytes = 16 << 20, .segment_bytes = 2 << 20};
// What the second half of the prompts may add to the process: tables that grow with their capacity, RocksDB's buffers.
// All prompts together bring ten times as much.
constexpr std::uint64_t kGrowthMax = std::uint64_t{24} << 20;
// In sanitizer builds freed memory stays with the process.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kResidentMemoryTells = false;
#else
constexpr bool kResidentMemoryTells = true;
#endif

std::uint64_t ResidentBytes() {
  std::uint64_t pages = 0;
  std::uint64_t resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  return resident * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

std::uint64_t SegmentFileBytes(const std::string& store) {
  std::uint64_t bytes = 0;
  for (const auto& file : std::filesystem::directory_iterator(store + "/segments")) bytes += file.file_size();
  return bytes;
}

class DramBudget : public testing::Test {
 protected:
  void SetUp() override {
    auto store = factory_.OpenLocal(kSmall);
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
    ns_ = *store_->OpenNamespace(TestSpec(), {});
  }
  void ExpectWithinBudget() {
    const auto stats = store_->Stats();
    ASSERT_TRUE(stats.ok()) << stats.status();
    ASSERT_LE(stats->dram.bytes, kSmall.dram_bytes);
    ASSERT_EQ(stats->dram.capacity_bytes, store_->arena_bytes());
    ASSERT_LE(stats->dram.capacity_bytes, kSmall.dram_bytes) << "the arena itself";
    ASSERT_LE(stats->nvme.bytes, kSmall.nvme_bytes);
    ASSERT_LE(SegmentFileBytes(factory_.store_directory()), kSmall.nvme_bytes);
  }
  // A commit that finds DRAM full of blocks that wait for the device is refused: then the device is waited for.
  void Commit(const Namespace& ns, std::span<const TokenId> tokens) {
    absl::Status status = CommitChain(*store_, ns, tokens).status();
    if (absl::IsResourceExhausted(status)) {
      ASSERT_TRUE(FlushNow(*store_).ok());
      status = CommitChain(*store_, ns, tokens).status();
    }
    ASSERT_TRUE(status.ok()) << status;
  }

  LocalStoreFactory factory_;
  std::unique_ptr<LocalStore> store_;
  Namespace ns_;
};

TEST_F(DramBudget, UniquePromptsNeverExceedItAndTheProcessLevelsOff) {
  std::uint64_t halfway = 0;
  for (std::uint32_t seed = 0; seed < kPrompts; ++seed) {
    if (seed == kPrompts / 2) halfway = ResidentBytes();
    ASSERT_NO_FATAL_FAILURE(Commit(ns_, TestChain(seed, 2)));
    ASSERT_NO_FATAL_FAILURE(ExpectWithinBudget());
  }
  EXPECT_GT(store_->Stats()->evicted_blocks_dram, kPrompts);
  EXPECT_GT(store_->Stats()->evicted_blocks_nvme, kPrompts);
  if (kResidentMemoryTells) {
    EXPECT_LT(ResidentBytes(), halfway + kGrowthMax);
  }
}

TEST_F(DramBudget, BlocksOfSeveralSizesAndTierMovesNeverExceedIt) {
  NamespaceSpec large_spec = TestSpec();
  large_spec.salt = "large";
  large_spec.layer_bytes *= 3;
  const Namespace large = *store_->OpenNamespace(large_spec, {});
  for (std::uint32_t seed = 0; seed < 300; ++seed) {
    ASSERT_NO_FATAL_FAILURE(Commit(seed % 3 == 0 ? large : ns_, TestChain(seed, 2)));
    const std::uint32_t earlier = seed / 2;
    const Namespace& of = earlier % 3 == 0 ? large : ns_;
    const auto tokens = TestChain(earlier, 2);
    const auto lease = AcquireNow(*store_, of, tokens);
    ASSERT_TRUE(lease.ok()) << lease.status();
    EXPECT_TRUE(LeaseIsExact(*lease, of, tokens));
    ASSERT_NO_FATAL_FAILURE(Commit(of, tokens)) << "a duplicate, or a block that had gone";
    ASSERT_NO_FATAL_FAILURE(ExpectWithinBudget());
  }
  ASSERT_TRUE(FlushNow(*store_).ok());
  ASSERT_TRUE(DropNow(*store_, {.ns = {}, .tenant = {}, .all = true}).ok());
  const auto stats = store_->Stats();
  EXPECT_EQ(stats->dram.bytes, 0u) << "every byte that was counted is uncounted";
  EXPECT_EQ(stats->dram.blocks, 0u);
  EXPECT_EQ(stats->nvme.bytes, 0u);
  EXPECT_EQ(stats->nvme.blocks, 0u);
}

TEST_F(DramBudget, LeasedAndDroppedMemoryCountsUntilItIsGivenBack) {
  const auto tokens = TestChain(1, 8);
  ASSERT_NO_FATAL_FAILURE(Commit(ns_, tokens));
  ASSERT_TRUE(FlushNow(*store_).ok());
  auto lease = AcquireNow(*store_, ns_, tokens);
  ASSERT_TRUE(lease.ok()) << lease.status();
  ASSERT_EQ(lease->blocks().size(), 8u);
  ASSERT_TRUE(DropNow(*store_, {.ns = ns_.id, .tenant = {}, .all = false}).ok());
  std::vector<WriteGrant> grants;  // all there is beside the lease
  absl::StatusOr<WriteGrant> grant = store_->Grant(ns_.id);
  for (; grant.ok(); grant = store_->Grant(ns_.id)) grants.push_back(*std::move(grant));
  EXPECT_TRUE(absl::IsResourceExhausted(grant.status())) << grant.status();
  EXPECT_LE((8 + grants.size()) * ns_.spec.payload_bytes(), store_->arena_bytes());
  EXPECT_TRUE(LeaseIsExact(*lease, ns_, tokens)) << "no grant may lie on leased memory";
  const std::size_t beside = grants.size();
  grants.clear();
  *lease = Lease();
  for (grant = store_->Grant(ns_.id); grant.ok(); grant = store_->Grant(ns_.id)) grants.push_back(*std::move(grant));
  EXPECT_EQ(grants.size(), beside + 8);
}

}  // namespace
}  // namespace kvist
