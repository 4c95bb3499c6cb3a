#include "cachestore/key/key_hasher.h"

#include <numeric>
#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace kvist {
namespace {

// Byte i is (7 * i + 1) mod 256.
KeyHasher::Secret FixedSecret() {
  KeyHasher::Secret secret;
  for (std::size_t i = 0; i < secret.size(); ++i) secret[i] = static_cast<std::byte>(7 * i + 1);
  return secret;
}

std::vector<TokenId> Ramp(std::size_t count) {
  std::vector<TokenId> tokens(count);
  std::iota(tokens.begin(), tokens.end(), TokenId{1000});
  return tokens;
}

// Stores on disk are addressed by these: a change here orphans every store there is.
TEST(KeyHasher, GivesTheGoldenVectors) {
  const KeyHasher hasher(FixedSecret());
  const Digest128 root = hasher.Root("kvist");
  EXPECT_EQ(root.ToHex(), "8f96b6c3e8a1f796e3ef24c855ae3acf");
  const auto keys16 = hasher.Chain(root, Ramp(48), 16);
  ASSERT_EQ(keys16.size(), 3u);
  EXPECT_EQ(keys16[0].ToHex(), "2f001217b8f03264ca917cdefad2c66a");
  EXPECT_EQ(keys16[2].ToHex(), "b00e6fbfeebdac45a827d665e650811f");
  EXPECT_EQ(hasher.Chain(root, Ramp(64), 64).at(0).ToHex(), "2625818b527f22bbce8bad556f55e6e6");
  EXPECT_EQ(hasher.Chain(root, Ramp(512), 512).at(0).ToHex(), "64f84142e90e4f76f090cb0fb91f37c3");
  EXPECT_EQ(hasher.Root("").ToHex(), "8b066fcd5d5855b4435edc0c3f3c458d");
}

TEST(KeyHasher, ChainIsNextRepeated) {
  const KeyHasher hasher(FixedSecret());
  const auto tokens = Ramp(100);
  BlockKey parent = hasher.Root("ns");
  const auto keys = hasher.Chain(parent, tokens, 32);
  ASSERT_EQ(keys.size(), 3u);  // the last 4 tokens have no key
  for (std::size_t i = 0; i < keys.size(); ++i) {
    parent = hasher.Next(parent, std::span(tokens).subspan(i * 32, 32));
    EXPECT_EQ(keys[i], parent);
  }
}

TEST(KeyHasher, KeyDependsOnSecretParentAndEveryToken) {
  const KeyHasher hasher(FixedSecret());
  auto secret = FixedSecret();
  secret[20] ^= std::byte{1};
  const auto tokens = Ramp(64);
  const BlockKey parent{.hi = 1, .lo = 2};
  std::set<BlockKey> keys = {
      hasher.Next(parent, tokens),
      KeyHasher(secret).Next(parent, tokens),
      hasher.Next({.hi = 2, .lo = 1}, tokens),
      hasher.Next({.hi = 1, .lo = 3}, tokens),
  };
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    auto changed = tokens;
    changed[i] ^= 1;
    keys.insert(hasher.Next(parent, changed));
  }
  EXPECT_EQ(keys.size(), 4u + 64u);
}

}  // namespace
}  // namespace kvist
