// Retention: the part of the conformance suite that moves the clock.
#include "tests/conformance/prefix_store_conformance.h"

namespace kvist {
namespace {

absl::StatusOr<std::size_t> PinNow(PrefixStore& store, const Namespace& ns, std::span<const TokenId> tokens) {
  return Await<std::size_t>([&](Done<std::size_t> done) { store.Pin(ns.id, tokens, {}, std::move(done)); });
}

absl::StatusOr<std::size_t> UnpinNow(PrefixStore& store, const Namespace& ns, std::span<const TokenId> tokens) {
  return Await<std::size_t>([&](Done<std::size_t> done) { store.Unpin(ns.id, tokens, {}, std::move(done)); });
}

absl::StatusOr<std::size_t> TouchNow(PrefixStore& store, const Namespace& ns, std::span<const TokenId> tokens) {
  return Await<std::size_t>([&](Done<std::size_t> done) { store.Touch(ns.id, tokens, {}, std::move(done)); });
}

TEST_P(PrefixStoreConformance, ExpiresFromLastUse) {
  Open();
  const Namespace ns = OpenNs();
  const auto used = TestChain(1, 3);
  const auto touched = TestChain(2, 3);
  const auto idle = TestChain(3, 3);
  for (const auto& tokens : {used, touched, idle}) {
    ASSERT_TRUE(CommitChain(*store_, ns, tokens, Durability::kDurable).ok());
  }
  clock().Advance(absl::Hours(71));
  EXPECT_EQ(AcquireNow(*store_, ns, used)->blocks().size(), 3u);
  EXPECT_EQ(*TouchNow(*store_, ns, touched), 3u);
  EXPECT_EQ(MatchedBlocks(*store_, ns, idle), 3u);  // a probe: must not extend
  clock().Advance(absl::Hours(2));
  EXPECT_EQ(MatchedBlocks(*store_, ns, used), 3u);
  EXPECT_EQ(MatchedBlocks(*store_, ns, touched), 3u);
  EXPECT_EQ(MatchedBlocks(*store_, ns, idle), 0u);
  EXPECT_TRUE(AcquireNow(*store_, ns, idle)->empty());
  EXPECT_EQ(*TouchNow(*store_, ns, idle), 0u);
  clock().Advance(absl::Hours(71));
  EXPECT_EQ(MatchedBlocks(*store_, ns, used), 0u);
  EXPECT_TRUE(AcquireNow(*store_, ns, touched)->empty());
}

TEST_P(PrefixStoreConformance, ExpiresAcrossARestart) {
  Open();
  const Namespace ns = OpenNs();
  const auto early = TestChain(1, 2);
  const auto late = TestChain(2, 2);
  ASSERT_TRUE(CommitChain(*store_, ns, early, Durability::kDurable).ok());
  clock().Advance(absl::Hours(40));
  ASSERT_TRUE(CommitChain(*store_, ns, late, Durability::kDurable).ok());
  Open();
  clock().Advance(absl::Hours(40));
  EXPECT_EQ(MatchedBlocks(*store_, ns, early), 0u);
  EXPECT_TRUE(AcquireNow(*store_, ns, early)->empty());
  EXPECT_EQ(MatchedBlocks(*store_, ns, late), 2u);
}

TEST_P(PrefixStoreConformance, ANamespaceSetsItsOwnRetention) {
  Open();
  NamespaceSpec spec = TestSpec();
  spec.salt = "short";
  const Namespace brief = OpenNs(spec, {.ttl = absl::Minutes(5)});
  const Namespace ns = OpenNs();
  const auto tokens = TestChain(1, 2);
  ASSERT_TRUE(CommitChain(*store_, brief, tokens, Durability::kDurable).ok());
  ASSERT_TRUE(CommitChain(*store_, ns, tokens, Durability::kDurable).ok());
  clock().Advance(absl::Minutes(6));
  EXPECT_EQ(MatchedBlocks(*store_, brief, tokens), 0u);
  EXPECT_EQ(MatchedBlocks(*store_, ns, tokens), 2u);
}

TEST_P(PrefixStoreConformance, PinnedBlocksDoNotExpireUntilUnpinnedAsOften) {
  Open();
  const Namespace ns = OpenNs();
  const auto tokens = TestChain(1, 3);
  ASSERT_TRUE(CommitChain(*store_, ns, tokens).ok());
  EXPECT_EQ(*PinNow(*store_, ns, tokens), 3u);
  EXPECT_EQ(*PinNow(*store_, ns, tokens), 3u);
  clock().Advance(absl::Hours(24 * 10));
  EXPECT_EQ(MatchedBlocks(*store_, ns, tokens), 3u);
  Open();
  EXPECT_EQ(MatchedBlocks(*store_, ns, tokens), 3u) << "pins hold across restarts";
  EXPECT_EQ(*UnpinNow(*store_, ns, tokens), 3u);
  EXPECT_EQ(MatchedBlocks(*store_, ns, tokens), 3u);
  EXPECT_EQ(*UnpinNow(*store_, ns, tokens), 3u);
  EXPECT_EQ(MatchedBlocks(*store_, ns, tokens), 0u);
}

TEST_P(PrefixStoreConformance, PinnedBlocksOutliveEviction) {
  Open({.dram_bytes = 2 << 20, .nvme_bytes = 8 << 20, .segment_bytes = 2 << 20});
  const Namespace ns = OpenNs();
  const auto pinned = TestChain(1, 3);
  ASSERT_TRUE(CommitChain(*store_, ns, pinned, Durability::kDurable).ok());
  EXPECT_EQ(*PinNow(*store_, ns, pinned), 3u);
  for (std::uint32_t seed = 10; seed < 150; ++seed) {
    ASSERT_TRUE(CommitChain(*store_, ns, TestChain(seed, 2), Durability::kDurable).ok());
  }
  const auto lease = AcquireNow(*store_, ns, pinned);
  ASSERT_TRUE(lease.ok());
  EXPECT_EQ(lease->blocks().size(), 3u);
  EXPECT_TRUE(LeaseIsExact(*lease, ns, pinned));
}

TEST_P(PrefixStoreConformance, AWallClockThatJumpsBackExtendsNothing) {
  Open();
  const Namespace ns = OpenNs();
  const auto tokens = TestChain(1, 2);
  ASSERT_TRUE(CommitChain(*store_, ns, tokens).ok());
  clock().JumpWall(-absl::Hours(48));
  clock().Advance(absl::Hours(71));
  EXPECT_EQ(MatchedBlocks(*store_, ns, tokens), 2u);
  clock().Advance(absl::Hours(2));
  EXPECT_EQ(MatchedBlocks(*store_, ns, tokens), 0u);
}

TEST_P(PrefixStoreConformance, AWallClockThatLeapsAheadKillsNothingAtOnce) {
  Open();
  const Namespace ns = OpenNs();
  const auto tokens = TestChain(1, 2);
  ASSERT_TRUE(CommitChain(*store_, ns, tokens).ok());
  clock().JumpWall(absl::Hours(24 * 400));
  EXPECT_EQ(MatchedBlocks(*store_, ns, tokens), 2u);
  clock().JumpWall(-absl::Hours(24 * 400));
  EXPECT_EQ(MatchedBlocks(*store_, ns, tokens), 2u);
}

}  // namespace
}  // namespace kvist
