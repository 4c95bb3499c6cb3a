#include "cachestore/tier/dram_tier.h"

#include <vector>

#include "gtest/gtest.h"

namespace kvist {
namespace {

constexpr RecordShape kShape{.block_tokens = 16, .layers = 1, .layer_bytes = 64 << 10};
constexpr NamespaceId kNs{.hi = 100, .lo = 100};
const absl::Time kNow = absl::FromUnixSeconds(1000);
const absl::Time kLater = kNow + absl::Hours(1);

BlockKey K(std::uint64_t n) { return {.hi = 0, .lo = n}; }
std::vector<TokenId> Tokens(std::uint64_t n) { return std::vector<TokenId>(16, static_cast<TokenId>(n)); }

class DramTierTest : public testing::Test {
 protected:
  DramTierTest() : tier_(std::make_shared<DramTier>(std::shared_ptr<DramArena>(*DramArena::Create(1 << 20)))) {
    std::vector<DramBlockRef> blocks;
    for (auto block = tier_->Allocate(kNs, kShape); block.ok(); block = tier_->Allocate(kNs, kShape)) {
      blocks.push_back(*std::move(block));
    }
    capacity_ = blocks.size();
  }

  absl::Status Put(std::uint64_t n, std::uint64_t parent, BlockState state = BlockState::kBelow,
                   absl::Time expires = kLater) {
    auto block = tier_->Allocate(kNs, kShape);
    if (!block.ok()) return block.status();
    SealRecord((*block)->record(),
               {.ns = kNs, .parent = Parent(parent), .key = K(n), .shape = kShape, .extent = {}, .expires_unix_s = 0},
               Tokens(n));
    return tier_->Publish(*std::move(block), K(n), Parent(parent), Tokens(n), state, expires).status();
  }
  static BlockKey Parent(std::uint64_t n) { return n == 0 ? kNs : K(n); }
  bool Has(std::uint64_t n) const { return tier_->Lookup(kNs, K(n), kNow) == Presence::kPresent; }

  std::shared_ptr<DramTier> tier_;
  std::size_t capacity_ = 0;  // in blocks: a dozen or so
};

TEST_F(DramTierTest, EvictsLeastRecentlyUsedLeavesOnly) {
  for (std::uint64_t n = 1; n <= capacity_; ++n) ASSERT_TRUE(Put(n, n == 2 ? 1 : 0).ok());
  ASSERT_TRUE(Put(100, 0).ok());
  EXPECT_TRUE(Has(1)) << "has a child";
  EXPECT_FALSE(Has(2));
  ASSERT_TRUE(Put(101, 0).ok());
  EXPECT_FALSE(Has(1));
  EXPECT_EQ(tier_->counters().evicted_blocks, 2u);
}

TEST_F(DramTierTest, BlocksBeingWrittenAreNotEvicted) {
  for (std::uint64_t n = 1; n <= capacity_; ++n) ASSERT_TRUE(Put(n, 0, BlockState::kWriting).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(Put(100, 0)));
  tier_->SetState(*tier_->Find(K(9)), BlockState::kDramOnly);
  EXPECT_TRUE(Put(100, 0).ok());
  EXPECT_FALSE(Has(9));
}

TEST_F(DramTierTest, APinHoldsOnlyWhatIsNowhereElse) {
  ASSERT_TRUE(Put(1, 0, BlockState::kDramOnly).ok());
  ASSERT_TRUE(Put(2, 0, BlockState::kBelow).ok());
  tier_->SetPins(K(1), 1);
  tier_->SetPins(K(2), 1);
  for (std::uint64_t n = 10; n < 40; ++n) ASSERT_TRUE(Put(n, 0).ok());
  EXPECT_TRUE(Has(1));
  EXPECT_FALSE(Has(2));
  tier_->SetPins(K(1), 0);
  for (std::uint64_t n = 40; n < 60; ++n) ASSERT_TRUE(Put(n, 0).ok());
  EXPECT_FALSE(Has(1));
}

TEST_F(DramTierTest, LeasesHoldAndCompareTokens) {
  for (std::uint64_t n = 1; n <= 3; ++n) ASSERT_TRUE(Put(n, n - 1).ok());
  std::vector<BlockKey> keys = {K(1), K(2), K(3)};
  std::vector<TokenId> tokens;
  for (std::uint64_t n = 1; n <= 3; ++n) tokens.insert(tokens.end(), 16, static_cast<TokenId>(n));
  tokens.back() = 99;
  const auto leased = tier_->Lease(kNs, keys, tokens, kNow);
  EXPECT_EQ(leased.size(), 2u) << "the third holds other tokens: a collision must be a miss";
  EXPECT_EQ(tier_->counters().corrupt_blocks, 1u);
  EXPECT_EQ(tier_->counters().leased_blocks, 2u);
  for (std::uint64_t n = 10; n < 40; ++n) ASSERT_TRUE(Put(n, 0).ok());
  EXPECT_TRUE(Has(1));
  EXPECT_TRUE(Has(2));
  tier_->Release(leased);
  EXPECT_EQ(tier_->counters().leased_blocks, 0u);
  for (std::uint64_t n = 40; n < 60; ++n) ASSERT_TRUE(Put(n, 0).ok());
  EXPECT_FALSE(Has(1));
}

TEST_F(DramTierTest, ABlockPutAgainAfterADropIsNotReleasedByTheOldLease) {
  ASSERT_TRUE(Put(1, 0).ok());
  const auto old = tier_->Lease(kNs, std::vector{K(1)}, Tokens(1), kNow);
  ASSERT_EQ(old.size(), 1u);
  EXPECT_EQ(tier_->Drop([](const NamespaceId&) { return true; }).size(), 1u);
  ASSERT_TRUE(Put(1, 0).ok());
  const auto fresh = tier_->Lease(kNs, std::vector{K(1)}, Tokens(1), kNow);
  ASSERT_EQ(fresh.size(), 1u);
  EXPECT_NE(fresh[0], old[0]);
  tier_->Release(old);
  for (std::uint64_t n = 10; n < 40; ++n) ASSERT_TRUE(Put(n, 0).ok());
  EXPECT_TRUE(Has(1));
  tier_->Release(fresh);
}

TEST_F(DramTierTest, ExpiryTakesLeavesFirstAndSparesAncestorsOfTheLiving) {
  ASSERT_TRUE(Put(1, 0, BlockState::kBelow, kNow).ok());
  ASSERT_TRUE(Put(2, 1, BlockState::kBelow, kNow).ok());
  ASSERT_TRUE(Put(3, 1, BlockState::kBelow, kLater).ok());
  ASSERT_TRUE(Put(4, 0, BlockState::kBelow, kNow).ok());
  tier_->SetPins(K(4), 1);
  EXPECT_EQ(tier_->Expire(kNow), std::vector<BlockKey>{K(2)});
  EXPECT_EQ(tier_->Lookup(kNs, K(1), kNow), Presence::kExpired) << "kept for its child, but not found";
  EXPECT_TRUE(Has(4));
  EXPECT_EQ(tier_->Expire(kLater).size(), 2u);
}

// Blocks of one size, used in random order, are in the way of a larger one: a few must go, not most.
TEST(DramTierSizes, ALargerBlockCostsFewSmallOnes) {
  auto tier = std::make_shared<DramTier>(std::shared_ptr<DramArena>(*DramArena::Create(64 << 20)));
  std::vector<BlockKey> keys;
  for (std::uint64_t n = 1;; ++n) {
    auto block = tier->Allocate(kNs, kShape);
    ASSERT_TRUE(block.ok());
    if (tier->counters().evicted_blocks > 0) break;  // full
    SealRecord((*block)->record(),
               {.ns = kNs, .parent = kNs, .key = K(n), .shape = kShape, .extent = {}, .expires_unix_s = 0}, Tokens(n));
    ASSERT_TRUE(tier->Publish(*std::move(block), K(n), kNs, Tokens(n), BlockState::kBelow, kLater).ok());
    keys.push_back(K(n));
  }
  ASSERT_GT(keys.size(), 800u);
  std::uint64_t random = 1;
  for (std::size_t i = keys.size() - 1; i > 0; --i) {
    random = random * 6364136223846793005 + 1442695040888963407;
    std::swap(keys[i], keys[(random >> 33) % i]);
  }
  tier->Touch(keys, kLater);
  const std::uint64_t before = tier->counters().evicted_blocks;
  const RecordShape large{.block_tokens = 16, .layers = 1, .layer_bytes = 1400 << 10};
  const auto block = tier->Allocate(kNs, large);
  ASSERT_TRUE(block.ok()) << block.status();
  EXPECT_LT(tier->counters().evicted_blocks - before, 120u);
}

TEST_F(DramTierTest, APromotionThatADropOvertookIsNotInserted) {
  const std::uint64_t epoch = tier_->drop_epoch();
  auto block = tier_->Allocate(kNs, kShape);
  ASSERT_TRUE(block.ok());
  tier_->Drop([](const NamespaceId&) { return true; });
  const auto published = tier_->Publish(*block, K(1), kNs, Tokens(1), BlockState::kBelow, kLater, epoch);
  ASSERT_TRUE(published.ok());
  EXPECT_FALSE(published->inserted);
  EXPECT_FALSE(Has(1));
}

}  // namespace
}  // namespace kvist
