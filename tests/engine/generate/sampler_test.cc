#include "engine/generate/sampler.h"

#include <cmath>
#include <map>
#include <vector>

#include "gtest/gtest.h"

namespace kvist::engine {
namespace {

TEST(Sampler, GreedyTakesTheHighestAndTheLowestIdOnATie) {
  Sampler sampler(SamplingOptions{});
  EXPECT_EQ(sampler.Sample(std::vector<float>{0.5f, 3.0f, 3.0f, -1.0f}), 1u);
}

TEST(Sampler, SameSeedGivesTheSameTokens) {
  const std::vector<float> logits{1.0f, 1.1f, 0.9f, 1.05f};
  const SamplingOptions options{.temperature = 1.0f, .top_p = 1.0f, .seed = 7};
  Sampler a(options);
  Sampler b(options);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(a.Sample(logits), b.Sample(logits));
}

TEST(Sampler, DrawsInProportionToSoftmaxAtTheTemperature) {
  const std::vector<float> logits{0.0f, std::log(3.0f)};  // odds 1:3 at temperature 1
  Sampler sampler({.temperature = 1.0f, .top_p = 1.0f, .seed = 1});
  std::map<TokenId, int> drawn;
  for (int i = 0; i < 20000; ++i) ++drawn[sampler.Sample(logits)];
  EXPECT_NEAR(drawn[1] / 20000.0, 0.75, 0.02);  // 6 sigma of a fixed seed
}

TEST(Sampler, TopPCutsTheTail) {
  const std::vector<float> logits{std::log(0.6f), std::log(0.3f), std::log(0.1f)};
  Sampler sampler({.temperature = 1.0f, .top_p = 0.8f, .seed = 2});
  std::map<TokenId, int> drawn;
  for (int i = 0; i < 2000; ++i) ++drawn[sampler.Sample(logits)];
  EXPECT_EQ(drawn.count(2), 0u);
  EXPECT_GT(drawn[1], 0);
}

TEST(Sampler, TopPKeepsAtLeastOneToken) {
  const std::vector<float> logits{0.0f, 0.0f, 5.0f};
  Sampler sampler({.temperature = 2.0f, .top_p = 0.0f, .seed = 3});
  for (int i = 0; i < 50; ++i) EXPECT_EQ(sampler.Sample(logits), 2u);
}

}  // namespace
}  // namespace kvist::engine
