#include "cachestore/retention/eviction_policy.h"

#include <algorithm>
#include <bit>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace kvist {
namespace {

using ::testing::Eq;
using ::testing::Optional;

BlockKey Key(std::uint64_t n) { return {0, n}; }
BlockPlace Under(std::uint64_t parent, std::uint32_t depth) { return {Key(parent), depth, 64, 1 << 20}; }

class EvictionPolicyTest : public ::testing::TestWithParam<EvictionKind> {
 protected:
  std::unique_ptr<EvictionPolicy> policy_ = MakeEvictionPolicy(GetParam());
};

std::string NameOf(const ::testing::TestParamInfo<EvictionKind>& info) {
  std::string name(EvictionKindName(info.param));
  std::erase(name, '-');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Kinds, EvictionPolicyTest,
                         ::testing::Values(EvictionKind::kLru, EvictionKind::kS3Fifo, EvictionKind::kReuseValue,
                                           EvictionKind::kReuseCost),
                         NameOf);

TEST_P(EvictionPolicyTest, NameLeadsBackToTheKind) {
  EXPECT_THAT(EvictionKindFromName(EvictionKindName(GetParam())), Optional(GetParam()));
  EXPECT_EQ(EvictionKindFromName("fifo"), std::nullopt);
}

TEST_P(EvictionPolicyTest, EmptyHasNoVictim) { EXPECT_EQ(policy_->Victim(), std::nullopt); }

TEST_P(EvictionPolicyTest, AbsentBlocksAreIgnored) {
  policy_->Touch(Key(1));
  policy_->Erase(Key(1));
  policy_->Pin(Key(1));
  policy_->Unpin(Key(1));
  EXPECT_EQ(policy_->size(), 0u);
  EXPECT_FALSE(policy_->Contains(Key(1)));
  EXPECT_FALSE(policy_->HasChildren(Key(1)));
}

TEST_P(EvictionPolicyTest, ChainLeavesFromItsTail) {
  for (std::uint32_t i = 0; i < 5; ++i) policy_->Insert(Key(i + 1), Under(i, i));
  for (std::uint64_t tail = 5; tail >= 1; --tail) {
    ASSERT_THAT(policy_->Victim(), Optional(Key(tail)));
    policy_->Erase(Key(tail));
  }
  EXPECT_EQ(policy_->Victim(), std::nullopt);
}

TEST_P(EvictionPolicyTest, ParentThatComesAfterItsChildIsKeptForIt) {
  policy_->Insert(Key(2), Under(1, 1));
  EXPECT_FALSE(policy_->Contains(Key(1)));
  policy_->Insert(Key(1), Under(0, 0));
  EXPECT_TRUE(policy_->HasChildren(Key(1)));
  EXPECT_THAT(policy_->Victim(), Optional(Key(2)));
}

TEST_P(EvictionPolicyTest, ParentErasedUnderItsChildAndBackIsKeptForIt) {
  policy_->Insert(Key(1), Under(0, 0));
  policy_->Insert(Key(2), Under(1, 1));
  policy_->Erase(Key(1));  // expired
  EXPECT_FALSE(policy_->Contains(Key(1)));
  policy_->Insert(Key(1), Under(0, 0));
  EXPECT_TRUE(policy_->HasChildren(Key(1)));
  EXPECT_THAT(policy_->Victim(), Optional(Key(2)));
}

TEST_P(EvictionPolicyTest, PinnedBlockStaysUntilItsLastPinIsGone) {
  policy_->Insert(Key(1), Under(0, 0));
  policy_->Pin(Key(1));
  policy_->Pin(Key(1));
  EXPECT_EQ(policy_->Victim(), std::nullopt);
  policy_->Unpin(Key(1));
  EXPECT_EQ(policy_->Victim(), std::nullopt);
  policy_->Unpin(Key(1));
  EXPECT_THAT(policy_->Victim(), Optional(Key(1)));
  policy_->Unpin(Key(1));  // one too many: not owed to the next pin
  policy_->Pin(Key(1));
  EXPECT_EQ(policy_->Victim(), std::nullopt);
}

TEST_P(EvictionPolicyTest, PinsEndWithTheBlock) {
  policy_->Insert(Key(1), Under(0, 0));
  policy_->Pin(Key(1));
  policy_->Erase(Key(1));
  policy_->Insert(Key(1), Under(0, 0));
  EXPECT_THAT(policy_->Victim(), Optional(Key(1)));
}

TEST_P(EvictionPolicyTest, PinnedTailHoldsItsWholeChain) {
  for (std::uint32_t i = 0; i < 3; ++i) policy_->Insert(Key(i + 1), Under(i, i));
  policy_->Insert(Key(9), Under(1, 1));
  policy_->Pin(Key(3));
  EXPECT_THAT(policy_->Victim(), Optional(Key(9)));
  policy_->Erase(Key(9));
  EXPECT_EQ(policy_->Victim(), std::nullopt);
}

TEST_P(EvictionPolicyTest, InsertedTwiceCountsOnce) {
  policy_->Insert(Key(1), Under(0, 0));
  policy_->Insert(Key(2), Under(1, 1));
  policy_->Insert(Key(2), Under(1, 1));
  EXPECT_EQ(policy_->size(), 2u);
  policy_->Erase(Key(2));
  EXPECT_FALSE(policy_->HasChildren(Key(1)));
}

TEST_P(EvictionPolicyTest, SameCallsGiveTheSameVictims) {
  const auto victims = [&] {
    auto policy = MakeEvictionPolicy(GetParam());
    std::mt19937 random(7);
    std::vector<BlockKey> out;
    for (int i = 0; i < 5000; ++i) {
      const std::uint64_t n = 1 + random() % 2000;
      policy->Contains(Key(n)) ? policy->Touch(Key(n)) : policy->Insert(Key(n), Under(n / 2, n < 2 ? 0 : 1));
      while (policy->size() > 500) {
        out.push_back(*policy->Victim());
        policy->Erase(out.back());
      }
    }
    return out;
  };
  EXPECT_EQ(victims(), victims());
}

// A million blocks in chains of 24, half of them evicted once: what the books take when a store is full.
TEST_P(EvictionPolicyTest, BooksStayBelow64BytesPerBlock) {
  constexpr std::size_t kBlocks = 1'000'000;
  auto policy = MakeEvictionPolicy(GetParam(), kBlocks);
  for (std::uint64_t n = 1; n <= kBlocks * 3 / 2; ++n) {
    const std::uint32_t depth = (n - 1) % 24;
    policy->Insert(Key(n), Under(depth == 0 ? 0 : n - 1, depth));
    if (policy->size() > kBlocks) policy->Erase(*policy->Victim());
  }
  ASSERT_EQ(policy->size(), kBlocks);
  EXPECT_LE(static_cast<double>(policy->MemoryBytes()) / kBlocks, 64.0);
}

// What every policy must agree on, kept in the plainest way.
class Books {
 public:
  void Insert(std::uint64_t n, std::uint64_t parent) { blocks_.try_emplace(n, Block{parent, 0}); }
  void Erase(std::uint64_t n) { blocks_.erase(n); }
  void Pin(std::uint64_t n, int by) {
    if (const auto it = blocks_.find(n); it != blocks_.end() && it->second.pins + by >= 0) it->second.pins += by;
  }
  bool Contains(std::uint64_t n) const { return blocks_.contains(n); }
  bool HasChildren(std::uint64_t n) const {
    return Contains(n) && std::ranges::any_of(blocks_, [&](const auto& entry) { return entry.second.parent == n; });
  }
  bool MayLeave(std::uint64_t n) const { return Contains(n) && !HasChildren(n) && blocks_.at(n).pins == 0; }
  bool AnyMayLeave() const {
    return std::ranges::any_of(blocks_, [&](const auto& entry) { return MayLeave(entry.first); });
  }
  std::size_t size() const { return blocks_.size(); }

 private:
  struct Block {
    std::uint64_t parent;
    int pins;
  };
  std::map<std::uint64_t, Block> blocks_;
};

TEST_P(EvictionPolicyTest, KeepsTheSameBooksAsAPlainModel) {
  constexpr std::uint64_t kKeys = 40;  // a binary tree: the parent of n is n / 2
  for (unsigned seed = 0; seed < 30; ++seed) {
    SCOPED_TRACE(seed);
    auto policy = MakeEvictionPolicy(GetParam());
    Books books;
    std::mt19937 random(seed);
    for (int step = 0; step < 400; ++step) {
      const std::uint64_t n = 1 + random() % kKeys;
      switch (random() % 8) {
        case 0:
        case 1:
        case 2:
          policy->Insert(Key(n), Under(n / 2, static_cast<std::uint32_t>(std::bit_width(n) - 1)));
          books.Insert(n, n / 2);
          break;
        case 3:
          policy->Touch(Key(n));
          break;
        case 4:
          policy->Erase(Key(n));
          books.Erase(n);
          break;
        case 5:
          policy->Pin(Key(n));
          books.Pin(n, 1);
          break;
        case 6:
          policy->Unpin(Key(n));
          books.Pin(n, -1);
          break;
        case 7:
          const std::optional<BlockKey> victim = policy->Victim();
          ASSERT_EQ(victim.has_value(), books.AnyMayLeave());
          if (!victim) break;
          ASSERT_TRUE(books.MayLeave(victim->lo)) << victim->lo;
          policy->Erase(*victim);
          books.Erase(victim->lo);
          break;
      }
      ASSERT_EQ(policy->size(), books.size());
      ASSERT_EQ(policy->Contains(Key(n)), books.Contains(n));
      ASSERT_EQ(policy->HasChildren(Key(n)), books.HasChildren(n));
    }
  }
}

}  // namespace
}  // namespace kvist
