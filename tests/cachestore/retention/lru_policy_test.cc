#include "cachestore/retention/lru_policy.h"

#include <algorithm>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace kvist {
namespace {

using ::testing::Optional;

BlockKey Key(std::uint64_t n) { return {n, 0}; }

TEST(LruPolicy, LeastRecentlyUsedLeafGoesFirst) {
  LruPolicy lru(0);
  lru.Insert(Key(1), {});
  lru.Insert(Key(2), {});
  lru.Insert(Key(3), {});
  lru.Touch(Key(1));
  EXPECT_THAT(lru.Victim(), Optional(Key(2)));
  lru.Erase(Key(2));
  EXPECT_THAT(lru.Victim(), Optional(Key(3)));
}

TEST(LruPolicy, ParentTakesItsOwnPlaceOnceItsChildIsGone) {
  LruPolicy lru(0);
  lru.Insert(Key(1), {});
  lru.Insert(Key(9), {});
  lru.Insert(Key(2), {.parent = Key(1), .depth = 1});
  EXPECT_THAT(lru.Victim(), Optional(Key(9)));
  lru.Erase(Key(2));
  EXPECT_THAT(lru.Victim(), Optional(Key(1)));
}

// The plainest LRU: a list of blocks by use, searched from its old end.
TEST(LruPolicy, AgreesWithAList) {
  struct Block {
    std::uint64_t n;
    int pins;
  };
  for (unsigned seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    LruPolicy lru(0);
    std::vector<Block> list;  // oldest first; the parent of n is n / 2
    const auto find = [&](std::uint64_t n) { return std::ranges::find(list, n, &Block::n); };
    for (int step = 0; step < 500; ++step) {
      const std::uint64_t n = 1 + random() % 30;
      const auto it = find(n);
      switch (random() % 5) {
        case 0:
        case 1:
          if (it != list.end()) {
            std::rotate(it, it + 1, list.end());
            lru.Touch(Key(n));
          } else {
            list.push_back({n, 0});
            lru.Insert(Key(n), {.parent = Key(n / 2), .depth = 1});
          }
          break;
        case 2:
          if (it != list.end()) ++it->pins;
          lru.Pin(Key(n));
          break;
        case 3:
          if (it != list.end()) it->pins = std::max(0, it->pins - 1);
          lru.Unpin(Key(n));
          break;
        case 4:
          const auto may_leave = [&](const Block& block) {
            return block.pins == 0 && std::ranges::none_of(list, [&](const Block& b) { return b.n / 2 == block.n; });
          };
          const auto oldest = std::ranges::find_if(list, may_leave);
          if (oldest == list.end()) {
            ASSERT_EQ(lru.Victim(), std::nullopt);
          } else {
            ASSERT_THAT(lru.Victim(), Optional(Key(oldest->n)));
            lru.Erase(Key(oldest->n));
            list.erase(oldest);
          }
          break;
      }
    }
  }
}

}  // namespace
}  // namespace kvist
