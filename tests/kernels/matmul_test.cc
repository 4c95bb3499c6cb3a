#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "kernels/cpu/reference.h"
#include "kernels/ops.h"
#include "tests/kernels/each_target.h"
#include "tests/kernels/random_tensor.h"

namespace kvist::kernels {
namespace {

// Not a whole number of row blocks, and more than one column panel.
constexpr std::size_t kRows = 75;
constexpr std::size_t kCols = 512;
constexpr std::size_t kTokens = 45;

std::vector<float> Product(const Matrix& w, const std::vector<float>& x, std::size_t tokens) {
  std::vector<float> y(tokens * w.rows, -1.0f);
  MatMul(w, x.data(), tokens, {0, w.rows}, y.data(), w.rows);
  return y;
}

TEST(MatMul, MatchesTheReferenceOnEveryTypeAndTarget) {
  for (const TensorType type : kAllTypes) {
    SCOPED_TRACE(InfoOf(type).name);
    const RandomMatrix w(type, kRows, kCols, 1);
    const std::vector<float> x = RandomFloats(kTokens * kCols, 2);
    std::vector<float> expected(kTokens * kRows);
    reference::MatMul(w.matrix, x.data(), kTokens, expected.data());
    // Rounding of a chain of 512 sums of size about sqrt(512) / 3 each: far below this; a wrong weight is far above.
    OnEachTarget([&](std::int64_t) { EXPECT_LT(LargestDifference(Product(w.matrix, x, kTokens), expected), 2e-4f); });
  }
}

TEST(MatMul, ColumnsNeedNotFillTheLastPanel) {
  const RandomMatrix w(TensorType::kQ4_1, 64, 256 + 32, 1);
  const std::vector<float> x = RandomFloats(3 * w.matrix.cols, 2);
  std::vector<float> expected(3 * w.matrix.rows);
  reference::MatMul(w.matrix, x.data(), 3, expected.data());
  OnEachTarget([&](std::int64_t) { EXPECT_LT(LargestDifference(Product(w.matrix, x, 3), expected), 1e-4f); });
}

TEST(MatMul, ATokensResultDoesNotDependOnTheTokensBesideIt) {
  for (const TensorType type : kAllTypes) {
    SCOPED_TRACE(InfoOf(type).name);
    const RandomMatrix w(type, kRows, kCols, 1);
    const std::vector<float> x = RandomFloats(kTokens * kCols, 2);
    OnEachTarget([&](std::int64_t) {
      const std::vector<float> together = Product(w.matrix, x, kTokens);
      for (std::size_t step = 1; step <= kTokens; ++step) {  // every tail of the register tile, both loop orders
        std::vector<float> split;
        for (std::size_t t = 0; t < kTokens; t += step) {
          const std::size_t n = std::min(step, kTokens - t);
          const auto from = x.begin() + static_cast<std::ptrdiff_t>(t * kCols);
          const std::vector<float> part(from, from + static_cast<std::ptrdiff_t>(n * kCols));
          const std::vector<float> y = Product(w.matrix, part, n);
          split.insert(split.end(), y.begin(), y.end());
        }
        ASSERT_TRUE(SameBits(split, together)) << "in calls of " << step;
      }
    });
  }
}

TEST(MatMul, AnySplitOfTheRowsGivesTheSameBits) {
  const RandomMatrix w(TensorType::kQ6_K, kRows, kCols, 1);
  for (const std::size_t tokens : {std::size_t{1}, kTokens}) {
    const std::vector<float> x = RandomFloats(tokens * kCols, 2);
    OnEachTarget([&](std::int64_t) {
      const std::vector<float> whole = Product(w.matrix, x, tokens);
      for (const std::size_t cut : {1, 31, 32, 33, 64, 74}) {
        std::vector<float> y(tokens * kRows, -1.0f);
        MatMul(w.matrix, x.data(), tokens, {0, cut}, y.data(), kRows);
        MatMul(w.matrix, x.data(), tokens, {cut, kRows}, y.data(), kRows);
        EXPECT_TRUE(SameBits(y, whole)) << "cut at " << cut;
      }
    });
  }
}

TEST(MatMul, WritesOnlyTheRowsAskedFor) {
  const RandomMatrix w(TensorType::kQ8_0, kRows, kCols, 1);
  const std::vector<float> x = RandomFloats(2 * kCols, 2);
  OnEachTarget([&](std::int64_t) {
    std::vector<float> y(2 * kRows, -7.0f);
    MatMul(w.matrix, x.data(), 2, {10, 20}, y.data(), kRows);
    for (std::size_t i = 0; i < y.size(); ++i) {
      if (i % kRows < 10 || i % kRows >= 20) {
        EXPECT_EQ(y[i], -7.0f) << i;
      }
    }
    MatMul(w.matrix, x.data(), 2, {40, 40}, y.data(), kRows);
    EXPECT_EQ(y[40], -7.0f);
  });
}

TEST(MatMul, TargetsWithFusedMultiplyAddAgreeBitForBit) {
  const RandomMatrix w(TensorType::kQ4_K, kRows, kCols, 1);
  const std::vector<float> x = RandomFloats(kTokens * kCols, 2);
  std::optional<std::vector<float>> first;
  OnEachTarget([&](std::int64_t target) {
    if ((target & kFusedTargets) == 0) return;
    const std::vector<float> y = Product(w.matrix, x, kTokens);
    if (!first.has_value()) first = y;
    EXPECT_TRUE(SameBits(y, *first));
  });
}

}  // namespace
}  // namespace kvist::kernels
