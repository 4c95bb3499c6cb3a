// D14: a store that is nearly full, whose blocks are asked about all the time, and that can then evict nothing. Asking
// whether a block is there must not keep it there, and a hit only as long as its lease lives: puts go on.
#include <atomic>
#include <functional>
#include <thread>

#include "tests/conformance/local_store_factory.h"

namespace kvist {
namespace {

constexpr std::size_t kBlocks = 2;  // per prompt
constexpr std::uint32_t kNewPrompts = 150;

class EvictionFactory final : public LocalStoreFactory {
 public:
  explicit EvictionFactory(EvictionKind eviction) : eviction_(eviction) {}

 protected:
  void Adjust(LocalStoreOptions& options) override { options.eviction = eviction_; }

 private:
  const EvictionKind eviction_;
};

class ProbesDoNotPin : public testing::TestWithParam<EvictionKind> {
 protected:
  void SetUp() override {
    auto store = factory_.OpenLocal({.dram_bytes = 1 << 20, .nvme_bytes = 16 << 20, .segment_bytes = 2 << 20});
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
    ns_ = *store_->OpenNamespace(TestSpec(), {});
    while (store_->Stats()->evicted_blocks_nvme == 0) {
      ASSERT_LT(prompts_, 1'000u) << "NVMe never gets full";
      ASSERT_NO_FATAL_FAILURE(Put());
    }
  }
  // A policy may prefer the old blocks to a new one, which then leaves before its child comes: a miss, and no
  // standstill.
  void Put() {
    const auto keys = CommitChain(*store_, ns_, TestChain(prompts_, kBlocks), Durability::kDurable);
    ASSERT_TRUE(keys.ok() || absl::IsNotFound(keys.status())) << "prompt " << prompts_ << ": " << keys.status();
    ++prompts_;
    if (!keys.ok()) ++left_at_once_;
  }
  std::size_t Left(std::uint32_t prompts) {
    std::size_t left = 0;
    for (std::uint32_t seed = 0; seed < prompts; ++seed) left += MatchedBlocks(*store_, ns_, TestChain(seed, kBlocks));
    return left;
  }
  // All that was ever put is asked for after each put, as `probe` does it.
  void KeepPutting(const std::function<void(std::span<const TokenId>)>& probe) {
    const std::uint32_t old = prompts_;
    const std::size_t left = Left(old);
    for (std::uint32_t i = 0; i < kNewPrompts; ++i) {
      ASSERT_NO_FATAL_FAILURE(Put());
      for (std::uint32_t seed = 0; seed < prompts_; ++seed) probe(TestChain(seed, kBlocks));
    }
    EXPECT_LT(Left(old), left) << "being asked for kept all of the old blocks";
    EXPECT_LT(left_at_once_, kNewPrompts / 4);
    EXPECT_EQ(store_->Stats()->leased_blocks, 0u);
  }

  EvictionFactory factory_{GetParam()};
  std::unique_ptr<LocalStore> store_;
  Namespace ns_;
  std::uint32_t prompts_ = 0;
  std::uint32_t left_at_once_ = 0;
};

TEST_P(ProbesDoNotPin, Matches) {
  KeepPutting([this](std::span<const TokenId> tokens) { (void)MatchedBlocks(*store_, ns_, tokens); });
}

TEST_P(ProbesDoNotPin, TouchesAndShortLeases) {
  std::uint32_t calls = 0;
  KeepPutting([&](std::span<const TokenId> tokens) {
    if (++calls % 8 == 0) {
      ASSERT_TRUE(AcquireNow(*store_, ns_, tokens).ok());
    }
    const auto touched =
        Await<std::size_t>([&](Done<std::size_t> done) { store_->Touch(ns_.id, tokens, {}, std::move(done)); });
    ASSERT_TRUE(touched.ok()) << touched.status();
  });
}

TEST_P(ProbesDoNotPin, MatchesFromOtherThreads) {
  std::atomic<bool> stop = false;
  std::vector<std::thread> pollers;
  const std::uint32_t old = prompts_;
  for (int i = 0; i < 2; ++i) {
    pollers.emplace_back([&] {
      while (!stop) {
        for (std::uint32_t seed = 0; seed < old; ++seed) (void)MatchedBlocks(*store_, ns_, TestChain(seed, kBlocks));
      }
    });
  }
  const std::size_t left = Left(old);
  for (std::uint32_t i = 0; i < kNewPrompts && !HasFatalFailure(); ++i) Put();
  stop = true;
  for (std::thread& poller : pollers) poller.join();
  EXPECT_LT(Left(old), left);
}

// What does pin is refused at once, with an error that says so, and goes on when it is let go.
TEST_P(ProbesDoNotPin, LeasesThatLiveAreRefusedAtOnceAndLetGo) {
  std::vector<Lease> leases;
  std::size_t leased = 0;
  for (std::uint32_t seed = prompts_; seed-- > 0;) {
    auto lease = AcquireNow(*store_, ns_, TestChain(seed, kBlocks));
    ASSERT_TRUE(lease.ok()) << lease.status();
    if (lease->blocks().size() < kBlocks) break;  // DRAM is full of leases
    leased += lease->blocks().size();
    leases.push_back(*std::move(lease));
  }
  ASSERT_GT(leased, 0u);
  std::vector<WriteGrant> grants;
  absl::StatusOr<WriteGrant> grant = store_->Grant(ns_.id);
  for (; grant.ok() && grants.size() < 100; grant = store_->Grant(ns_.id)) grants.push_back(*std::move(grant));
  EXPECT_TRUE(absl::IsResourceExhausted(grant.status())) << grant.status();
  leases.clear();
  grants.clear();
  ASSERT_NO_FATAL_FAILURE(Put());
}

// The order of leaving is that of putting, as if nobody had asked.
TEST(ProbesDoNotPinLru, MatchesDoNotChangeWhoLeavesFirst) {
  EvictionFactory lru(EvictionKind::kLru);
  auto store = lru.OpenLocal({.dram_bytes = 1 << 20, .nvme_bytes = 16 << 20, .segment_bytes = 2 << 20});
  ASSERT_TRUE(store.ok()) << store.status();
  const Namespace ns = *(*store)->OpenNamespace(TestSpec(), {});
  const auto oldest = TestChain(0, kBlocks);
  ASSERT_TRUE(CommitChain(**store, ns, oldest, Durability::kDurable).ok());
  for (std::uint32_t seed = 1; (*store)->Stats()->evicted_blocks_nvme == 0; ++seed) {
    ASSERT_LT(seed, 1'000u);
    ASSERT_TRUE(CommitChain(**store, ns, TestChain(seed, kBlocks), Durability::kDurable).ok());
    for (int i = 0; i < 10; ++i) (void)MatchedBlocks(**store, ns, oldest);
  }
  EXPECT_LT(MatchedBlocks(**store, ns, oldest), kBlocks);
}

INSTANTIATE_TEST_SUITE_P(Policies, ProbesDoNotPin,
                         testing::Values(EvictionKind::kLru, EvictionKind::kS3Fifo, EvictionKind::kReuseValue,
                                         EvictionKind::kReuseCost),
                         [](const auto& policy) {
                           std::string name(EvictionKindName(policy.param));
                           std::erase(name, '-');
                           return name;
                         });

}  // namespace
}  // namespace kvist
