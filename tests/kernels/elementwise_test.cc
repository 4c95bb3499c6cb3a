#include <gmock/gmock.h>

#include <cmath>
#include <vector>

#include "kernels/cpu/reference.h"
#include "kernels/float16.h"
#include "kernels/ops.h"
#include "tests/kernels/each_target.h"
#include "tests/kernels/random_tensor.h"

namespace kvist::kernels {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatNear;

TEST(RmsNorm, DividesByTheRootMeanSquareAndWeighs) {
  const std::vector<float> x = {3, -4, 3, -4};  // mean square 12.5
  const std::vector<float> weight = {1, 1, 2, 0};
  std::vector<float> y(4);
  RmsNorm(x.data(), weight.data(), 0.0f, 4, y.data());
  const float root = std::sqrt(12.5f);
  EXPECT_THAT(y, ElementsAre(FloatNear(3 / root, 1e-6f), FloatNear(-4 / root, 1e-6f), FloatNear(6 / root, 1e-6f), 0));
}

TEST(RmsNorm, EpsilonKeepsZerosFinite) {
  const std::vector<float> x(64, 0.0f);
  const std::vector<float> weight(64, 1.0f);
  std::vector<float> y(64, 1.0f);
  RmsNorm(x.data(), weight.data(), 1e-5f, 64, y.data());
  EXPECT_EQ(y, x);
}

TEST(RmsNorm, MatchesTheReference) {
  const std::vector<float> x = RandomFloats(577, 1, 10.0f);
  const std::vector<float> weight = RandomFloats(577, 2);
  std::vector<float> y(577);
  std::vector<float> expected(577);
  RmsNorm(x.data(), weight.data(), 1e-5f, 577, y.data());
  reference::RmsNorm(x.data(), weight.data(), 1e-5f, 577, expected.data());
  EXPECT_LT(LargestDifference(y, expected), 1e-6f);
}

TEST(Rope, TurnsNeighboursAndLeavesTheRest) {
  std::vector<float> x = {1, 0, 0, 2, 5, 6, /* head 1 */ 0, 1, 3, 0, 7, 8};
  const std::vector<float> quarter_and_half_turn = {0, 1, -1, 0};
  Rope(x.data(), 2, 6, 2, quarter_and_half_turn.data());
  EXPECT_THAT(x, ElementsAre(0, 1, 0, -2, 5, 6, -1, 0, -3, 0, 7, 8));
}

TEST(Rope, MatchesTheReference) {
  std::vector<float> x = RandomFloats(9 * 64, 1);
  std::vector<float> expected = x;
  std::vector<float> cos_sin;
  for (int i = 0; i < 32; ++i) {
    cos_sin.push_back(std::cos(0.1f * static_cast<float>(i)));
    cos_sin.push_back(std::sin(0.1f * static_cast<float>(i)));
  }
  Rope(x.data(), 9, 64, 32, cos_sin.data());
  reference::Rope(expected.data(), 9, 64, 32, cos_sin.data());
  EXPECT_LT(LargestDifference(x, expected), 1e-6f);
}

TEST(SiluMul, MatchesTheReferenceOnEveryTarget) {
  const std::vector<float> gate = RandomFloats(1003, 1, 30.0f);
  const std::vector<float> up = RandomFloats(1003, 2);
  std::vector<float> expected = gate;
  reference::SiluMul(expected.data(), up.data(), expected.size());
  OnEachTarget([&](std::int64_t) {
    std::vector<float> y = gate;
    SiluMul(y.data(), up.data(), y.size());
    EXPECT_LT(LargestDifference(y, expected), 1e-5f);
  });
}

TEST(SiluMul, DoesNotDependOnWhereTheRunBegins) {
  const std::vector<float> gate = RandomFloats(100, 1, 5.0f);
  const std::vector<float> up = RandomFloats(100, 2);
  OnEachTarget([&](std::int64_t) {
    std::vector<float> whole = gate;
    SiluMul(whole.data(), up.data(), 100);
    std::vector<float> parts = gate;
    SiluMul(parts.data(), up.data(), 37);
    SiluMul(parts.data() + 37, up.data() + 37, 63);
    EXPECT_TRUE(SameBits(parts, whole));
  });
}

TEST(SiluMul, ExtremesSaturate) {
  std::vector<float> y = {1000.0f, -1000.0f, 0.0f};
  const std::vector<float> up = {2.0f, 2.0f, 2.0f};
  OnEachTarget([&](std::int64_t) {
    std::vector<float> out = y;
    SiluMul(out.data(), up.data(), 3);
    EXPECT_THAT(out, ElementsAre(2000.0f, FloatNear(0, 1e-34f), 0.0f));
  });
}

TEST(Add, AddsInPlace) {
  std::vector<float> x = {1, 2, 3};
  const std::vector<float> y = {10, 20, 30};
  Add(x.data(), y.data(), 3);
  EXPECT_THAT(x, ElementsAre(11, 22, 33));
}

TEST(WriteKv, PutsKeysByDimensionAndValuesByToken) {
  const KvShape shape{.kv_heads = 2, .head_dim = 2, .page_tokens = 16};
  ASSERT_EQ(shape.layer_bytes(), 2u * 2 * 2 * 16 * 2);
  std::vector<std::uint16_t> chunk(shape.layer_bytes() / 2, 0);
  const std::vector<float> k = {1, 2, 3, 4};
  const std::vector<float> v = {5, 6, 7, 8};
  WriteKv(shape, k.data(), v.data(), 9, reinterpret_cast<std::byte*>(chunk.data()));
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(F16ToF32(chunk[i * 16 + 9]), k[i]);
  EXPECT_EQ(F16ToF32(chunk[64 + 18]), 5);
  EXPECT_EQ(F16ToF32(chunk[64 + 19]), 6);
  EXPECT_EQ(F16ToF32(chunk[64 + 32 + 18]), 7);
  EXPECT_EQ(F16ToF32(chunk[64 + 32 + 19]), 8);
  EXPECT_EQ(std::count(chunk.begin(), chunk.end(), 0), 128 - 8);
}

}  // namespace
}  // namespace kvist::kernels
