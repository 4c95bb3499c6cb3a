// D18: the wall clock jumps. What is leased stays, what has time left to live keeps it and no more, also across a
// restart; only a clock that is ahead when the store opens looks like a pause, and that is what it is taken for.
#include "absl/strings/str_cat.h"
#include "tests/conformance/local_store_factory.h"

namespace kvist {
namespace {

constexpr absl::Duration kTtl = absl::Seconds(60);
const auto kJumps = {absl::Hours(1), -absl::Hours(1), absl::Hours(24 * 400), -absl::Hours(24 * 400)};

class ClockJumps : public testing::Test {
 protected:
  // A store of its own with one prompt of two blocks, just put and leased.
  void Begin() {
    lease_ = Lease();
    store_.reset();
    factory_ = std::make_unique<LocalStoreFactory>();
    Open();
    ASSERT_TRUE(CommitChain(*store_, ns_, tokens_, Durability::kDurable).ok());
    auto lease = AcquireNow(*store_, ns_, tokens_);
    ASSERT_TRUE(lease.ok()) << lease.status();
    ASSERT_EQ(lease->blocks().size(), 2u);
    lease_ = *std::move(lease);
  }
  void Open() {
    lease_ = Lease();
    store_.reset();
    auto store = factory_->OpenLocal({});
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
    ns_ = *store_->OpenNamespace(TestSpec(), {.ttl = kTtl});
  }
  void ExpectLeaseLives() {
    EXPECT_EQ(lease_.blocks().size(), 2u);
    EXPECT_TRUE(LeaseIsExact(lease_, ns_, tokens_));
  }
  void ExpectAlive() {
    ASSERT_TRUE(store_->Sweep().ok());
    EXPECT_EQ(MatchedBlocks(*store_, ns_, tokens_), 2u);
  }
  void ExpectDead(std::uint64_t others = 0) {
    EXPECT_EQ(MatchedBlocks(*store_, ns_, tokens_), 0u);
    EXPECT_TRUE(AcquireNow(*store_, ns_, tokens_)->empty());
    ASSERT_TRUE(store_->Sweep().ok());
    EXPECT_EQ(store_->Stats()->nvme.blocks, others);
  }
  FakeClock& clock() { return factory_->clock(); }

  std::unique_ptr<LocalStoreFactory> factory_;
  std::unique_ptr<LocalStore> store_;
  Namespace ns_;
  const std::vector<TokenId> tokens_ = TestChain(1, 2);
  Lease lease_;
};

TEST_F(ClockJumps, WhileRunningChangeNothing) {
  for (const absl::Duration jump : kJumps) {
    for (const bool and_back : {false, true}) {
      SCOPED_TRACE(absl::StrCat(absl::FormatDuration(jump), and_back ? " and back" : ""));
      ASSERT_NO_FATAL_FAILURE(Begin());
      clock().Advance(absl::Seconds(30));
      clock().JumpWall(jump);
      ExpectAlive();
      ExpectLeaseLives();
      clock().Advance(absl::Seconds(10));
      ExpectAlive();
      if (and_back) clock().JumpWall(-jump);
      clock().Advance(absl::Seconds(19));
      ExpectAlive();
      clock().Advance(absl::Seconds(2));
      ExpectDead();
      ExpectLeaseLives();
    }
  }
}

TEST_F(ClockJumps, BlocksPutDuringAJumpLiveAsLongAsOthers) {
  for (const absl::Duration jump : kJumps) {
    SCOPED_TRACE(absl::FormatDuration(jump));
    ASSERT_NO_FATAL_FAILURE(Begin());
    clock().JumpWall(jump);
    const auto during = TestChain(2, 2);
    ASSERT_TRUE(CommitChain(*store_, ns_, during, Durability::kDurable).ok());
    clock().JumpWall(-jump);
    clock().Advance(absl::Seconds(59));
    EXPECT_EQ(MatchedBlocks(*store_, ns_, during), 2u);
    clock().Advance(absl::Seconds(2));
    EXPECT_EQ(MatchedBlocks(*store_, ns_, during), 0u);
  }
}

TEST_F(ClockJumps, AreForgottenByARestart) {
  for (const absl::Duration jump : kJumps) {
    SCOPED_TRACE(absl::FormatDuration(jump));
    ASSERT_NO_FATAL_FAILURE(Begin());
    clock().JumpWall(jump);
    ExpectAlive();
    clock().Advance(absl::Seconds(15));
    clock().JumpWall(-jump);
    clock().Advance(absl::Seconds(15));
    ASSERT_NO_FATAL_FAILURE(Open());
    clock().Advance(absl::Seconds(29));
    ExpectAlive();
    clock().Advance(absl::Seconds(2));
    ExpectDead();
  }
}

TEST_F(ClockJumps, BackAcrossARestartMakeNothingImmortal) {
  for (const absl::Duration back : {absl::Hours(1), absl::Hours(24 * 400)}) {
    SCOPED_TRACE(absl::FormatDuration(back));
    ASSERT_NO_FATAL_FAILURE(Begin());
    clock().Advance(absl::Seconds(30));
    clock().JumpWall(-back);
    ASSERT_NO_FATAL_FAILURE(Open());
    ExpectAlive();
    // How long it was closed is not known; it lives no longer than if it had been used at the close.
    clock().Advance(kTtl + absl::Seconds(1));
    ExpectDead();
  }
}

TEST_F(ClockJumps, AheadAcrossARestartLookLikeAPauseUpToABound) {
  ASSERT_NO_FATAL_FAILURE(Begin());
  NamespaceSpec lasting_spec = TestSpec();
  lasting_spec.salt = "lasting";
  const NamespaceOptions three_days{.ttl = absl::Hours(72)};
  const Namespace lasting = *store_->OpenNamespace(lasting_spec, three_days);
  ASSERT_TRUE(CommitChain(*store_, lasting, tokens_, Durability::kDurable).ok());
  clock().JumpWall(absl::Hours(1));
  ASSERT_NO_FATAL_FAILURE(Open());
  ExpectDead(2);
  ASSERT_TRUE(store_->OpenNamespace(lasting_spec, three_days).ok());
  EXPECT_EQ(MatchedBlocks(*store_, lasting, tokens_), 2u);
  // It was no pause: the clock is put right. Time has not gone back, and goes on.
  clock().JumpWall(-absl::Hours(1));
  EXPECT_EQ(MatchedBlocks(*store_, lasting, tokens_), 2u);
  clock().Advance(absl::Hours(70));
  EXPECT_EQ(MatchedBlocks(*store_, lasting, tokens_), 2u);
  clock().Advance(absl::Hours(2));
  EXPECT_EQ(MatchedBlocks(*store_, lasting, tokens_), 0u);
}

TEST_F(ClockJumps, AheadBeyondBeliefAcrossARestartKillNothingAtOnce) {
  ASSERT_NO_FATAL_FAILURE(Begin());
  clock().JumpWall(absl::Hours(24 * 400));
  ASSERT_NO_FATAL_FAILURE(Open());
  ExpectAlive();
  clock().Advance(kTtl + absl::Seconds(1));
  ExpectDead();
}

}  // namespace
}  // namespace kvist
