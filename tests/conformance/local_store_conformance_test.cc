#include "tests/conformance/local_store_factory.h"

namespace kvist {
namespace {

std::unique_ptr<StoreFactory> MakeLocalStoreFactory() { return std::make_unique<LocalStoreFactory>(); }

INSTANTIATE_TEST_SUITE_P(Local, PrefixStoreConformance, testing::Values(&MakeLocalStoreFactory));

// With a shared tier below, which holds what the store has evicted.
class SharedStoreFactory : public LocalStoreFactory {
 protected:
  void Adjust(LocalStoreOptions& options) override {
    options.shared.folder.directory = folder_.path();
    options.shared.folder.bucket_list_age = absl::ZeroDuration();
    options.shared.folder.sync = false;
  }

 private:
  TestDirectory folder_;
};

std::unique_ptr<StoreFactory> MakeSharedStoreFactory() { return std::make_unique<SharedStoreFactory>(); }

INSTANTIATE_TEST_SUITE_P(Shared, PrefixStoreConformance, testing::Values(&MakeSharedStoreFactory));

TEST(LocalStore, ALeaseAndAGrantMayOutliveIt) {
  LocalStoreFactory factory;
  auto store = factory.OpenLocal({});
  ASSERT_TRUE(store.ok()) << store.status();
  const Namespace ns = *(*store)->OpenNamespace(TestSpec(), {});
  const auto tokens = TestChain(1, 3);
  ASSERT_TRUE(CommitChain(**store, ns, tokens).ok());
  auto lease = AcquireNow(**store, ns, tokens);
  auto grant = (*store)->Grant(ns.id);
  ASSERT_TRUE(lease.ok() && grant.ok());
  store->reset();
  EXPECT_EQ(lease->blocks().size(), 3u);
  EXPECT_TRUE(LeaseIsExact(*lease, ns, tokens));
  std::fill(grant->payload().begin(), grant->payload().end(), std::byte{1});
}

TEST(LocalStore, ClosingFlushesWhatWasOnlyInMemory) {
  LocalStoreFactory factory;
  auto store = factory.OpenLocal({});
  ASSERT_TRUE(store.ok());
  const Namespace ns = *(*store)->OpenNamespace(TestSpec(), {});
  const auto tokens = TestChain(1, 20);
  ASSERT_TRUE(CommitChain(**store, ns, tokens, Durability::kMemory).ok());
  store->reset();
  store = factory.OpenLocal({});
  ASSERT_TRUE(store.ok());
  EXPECT_EQ(MatchedBlocks(**store, ns, tokens), 20u);
}

TEST(LocalStore, SweepReclaimsExpiredBlocksButKeepsLeasedMemory) {
  LocalStoreFactory factory;
  auto store = factory.OpenLocal({});
  ASSERT_TRUE(store.ok());
  const Namespace ns = *(*store)->OpenNamespace(TestSpec(), {});
  const auto tokens = TestChain(1, 4);
  ASSERT_TRUE(CommitChain(**store, ns, tokens, Durability::kDurable).ok());
  const auto lease = AcquireNow(**store, ns, tokens);
  ASSERT_TRUE((*store)->Sweep().ok());
  EXPECT_EQ((*store)->Stats()->nvme.blocks, 4u);
  factory.clock().Advance(absl::Hours(72));
  ASSERT_TRUE((*store)->Sweep().ok());
  const auto stats = (*store)->Stats();
  EXPECT_EQ(stats->dram.blocks, 0u);
  EXPECT_EQ(stats->nvme.blocks, 0u);
  EXPECT_EQ(stats->expired_blocks, 4u);
  EXPECT_EQ(lease->blocks().size(), 4u);
  EXPECT_TRUE(LeaseIsExact(*lease, ns, tokens));
}

TEST(LocalStore, ConcurrentAcquiresReadAColdBlockOnce) {
  LocalStoreFactory factory;
  auto store = factory.OpenLocal({});
  ASSERT_TRUE(store.ok());
  const Namespace ns = *(*store)->OpenNamespace(TestSpec(), {});
  const auto tokens = TestChain(1, 10);
  ASSERT_TRUE(CommitChain(**store, ns, tokens, Durability::kDurable).ok());
  store->reset();
  store = factory.OpenLocal({});
  ASSERT_TRUE(store.ok());
  constexpr int kCallers = 8;
  std::vector<Lease> leases(kCallers);
  absl::Mutex mutex;
  int completed = 0;
  for (int i = 0; i < kCallers; ++i) {
    (*store)->Acquire(ns.id, tokens, 10, {}, [&, i](absl::StatusOr<Lease> lease) {
      absl::MutexLock lock(&mutex);
      if (lease.ok()) leases[static_cast<std::size_t>(i)] = *std::move(lease);
      ++completed;
    });
  }
  mutex.LockWhen(absl::Condition(
      +[](int* count) { return *count == kCallers; }, &completed));
  for (const Lease& lease : leases) {
    ASSERT_EQ(lease.blocks().size(), 10u);
    EXPECT_TRUE(LeaseIsExact(lease, ns, tokens));
    for (std::size_t i = 0; i < 10; ++i) {
      EXPECT_EQ(lease.blocks()[i].payload.data(), leases[0].blocks()[i].payload.data()) << "one copy in DRAM";
    }
  }
  mutex.Unlock();
  EXPECT_EQ((*store)->Stats()->dram.blocks, 10u);
}

}  // namespace
}  // namespace kvist
