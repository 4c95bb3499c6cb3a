#include "cachestore/retention/prefix_lru.h"

#include <map>
#include <vector>

#include "gtest/gtest.h"

namespace kvist {
namespace {

BlockKey K(std::uint64_t n) { return {.hi = 0, .lo = n}; }
constexpr std::uint64_t kRoot = 0;

std::vector<std::uint64_t> Drain(PrefixLru& lru) {
  std::vector<std::uint64_t> order;
  while (const auto victim = lru.Victim()) {
    order.push_back(victim->lo);
    lru.Erase(*victim);
  }
  return order;
}

TEST(PrefixLru, ChildrenLeaveBeforeTheirParents) {
  PrefixLru lru;
  lru.Insert(K(1), K(kRoot));
  lru.Insert(K(2), K(1));
  lru.Insert(K(3), K(2));
  EXPECT_EQ(Drain(lru), (std::vector<std::uint64_t>{3, 2, 1}));
}

TEST(PrefixLru, LeastRecentlyUsedLeafLeavesFirst) {
  PrefixLru lru;
  for (std::uint64_t n = 1; n <= 3; ++n) lru.Insert(K(n), K(kRoot));
  lru.Touch(K(1));
  EXPECT_EQ(Drain(lru), (std::vector<std::uint64_t>{2, 3, 1}));
}

TEST(PrefixLru, PinsNest) {
  PrefixLru lru;
  lru.Insert(K(1), K(kRoot));
  lru.Pin(K(1));
  lru.Pin(K(1));
  lru.Unpin(K(1));
  EXPECT_FALSE(lru.Victim());
  lru.Unpin(K(1));
  EXPECT_EQ(lru.Victim(), K(1));
  lru.Unpin(K(1));  // one too many changes nothing
  lru.Pin(K(1));
  EXPECT_FALSE(lru.Victim());
}

TEST(PrefixLru, AParentThatComesAfterItsChildrenIsKeptForThem) {
  PrefixLru lru;
  lru.Insert(K(2), K(1));
  lru.Insert(K(3), K(1));
  lru.Insert(K(1), K(kRoot));
  lru.Touch(K(2));
  EXPECT_TRUE(lru.HasChildren(K(1)));
  EXPECT_EQ(Drain(lru), (std::vector<std::uint64_t>{3, 2, 1}));
}

TEST(PrefixLru, AParentErasedAndPutAgainFindsItsChildren) {
  PrefixLru lru;
  lru.Insert(K(1), K(kRoot));
  lru.Insert(K(2), K(1));
  lru.Erase(K(1));
  EXPECT_EQ(lru.Victim(), K(2));
  lru.Insert(K(1), K(kRoot));
  EXPECT_TRUE(lru.HasChildren(K(1)));
  lru.Erase(K(2));
  EXPECT_FALSE(lru.HasChildren(K(1)));
  EXPECT_EQ(Drain(lru), (std::vector<std::uint64_t>{1}));
}

// Against the plainest model: the victim is the least recently used of all unpinned nodes that are nobody's parent.
TEST(PrefixLru, AgreesWithAPlainModelOnRandomOperations) {
  struct Node {
    std::uint64_t parent = 0;
    std::uint64_t used = 0;
    int pins = 0;
  };
  PrefixLru lru;
  std::map<std::uint64_t, Node> model;
  std::uint64_t now = 0;
  std::uint64_t random = 1;
  for (int step = 0; step < 20'000; ++step) {
    random = random * 6364136223846793005 + 1442695040888963407;
    const std::uint64_t n = 1 + (random >> 33) % 40;
    switch ((random >> 60) % 6) {
      case 0:
      case 1:
        lru.Insert(K(n), K(n / 2));
        if (model.try_emplace(n, Node{n / 2, now, 0}).second) model[n].used = ++now;
        break;
      case 2:
        lru.Touch(K(n));
        if (model.contains(n)) model[n].used = ++now;
        break;
      case 3:
        lru.Erase(K(n));
        model.erase(n);
        break;
      case 4:
        lru.Pin(K(n));
        if (model.contains(n)) ++model[n].pins;
        break;
      default:
        lru.Unpin(K(n));
        if (model.contains(n) && model[n].pins > 0) --model[n].pins;
    }
    std::optional<std::uint64_t> expected;
    for (const auto& [key, node] : model) {
      if (node.pins > 0) continue;
      bool parent = false;
      for (const auto& [other, child] : model) parent = parent || child.parent == key;
      if (!parent && (!expected || node.used < model[*expected].used)) expected = key;
    }
    const auto victim = lru.Victim();
    ASSERT_EQ(victim.has_value(), expected.has_value()) << step;
    if (victim) {
      ASSERT_EQ(victim->lo, *expected) << step;
    }
    ASSERT_EQ(lru.size(), model.size());
  }
}

}  // namespace
}  // namespace kvist
