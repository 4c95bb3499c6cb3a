#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "kernels/cpu/reference.h"
#include "kernels/ops.h"
#include "tests/kernels/each_target.h"
#include "tests/kernels/random_tensor.h"

namespace kvist::kernels {
namespace {

constexpr std::uint16_t kHalfNan = 0x7e00;

// A sequence with its queries, keys and values; KV is in pages whose unused slots hold NaN.
class Sequence {
 public:
  Sequence(std::size_t tokens, std::size_t heads, KvShape shape, float spread = 2.0f)
      : tokens_(tokens),
        heads_(heads),
        shape_(shape),
        q_(RandomFloats(tokens * heads * shape.head_dim, 1, spread)),
        pages_((tokens + shape.page_tokens - 1) / shape.page_tokens) {
    const std::size_t width = shape.kv_heads * shape.head_dim;
    k_ = RandomFloats(tokens * width, 2, spread);
    v_ = RandomFloats(tokens * width, 3);
    for (std::vector<std::uint16_t>& page : pages_) {
      page.assign(shape.layer_bytes() / 2, kHalfNan);
      chunks_.push_back(reinterpret_cast<const std::byte*>(page.data()));
    }
    for (std::size_t t = 0; t < tokens; ++t) Write(t);
  }

  void Write(std::size_t t) {
    const std::size_t width = shape_.kv_heads * shape_.head_dim;
    WriteKv(shape_, k_.data() + t * width, v_.data() + t * width, t % shape_.page_tokens,
            reinterpret_cast<std::byte*>(pages_[t / shape_.page_tokens].data()));
  }
  void SetValues(std::size_t t, float value) {
    const std::size_t width = shape_.kv_heads * shape_.head_dim;
    std::fill_n(v_.begin() + static_cast<std::ptrdiff_t>(t * width), width, value);
    Write(t);
  }

  AttentionInputs Inputs(std::size_t start, std::size_t tokens, float* out) const {
    return {.q = q_.data() + start * row(),
            .tokens = tokens,
            .start = start,
            .heads = heads_,
            .kv = shape_,
            .pages = chunks_,
            .out = out};
  }
  // Queries [start, start + tokens), computed in calls of `step`, each call's rows cut into `shares`.
  std::vector<float> Run(std::size_t start, std::size_t tokens, std::size_t step, std::size_t shares) const {
    std::vector<float> out(tokens * row());
    std::vector<float> scratch(AttentionScratchFloats(shape_.head_dim), std::nanf(""));
    for (std::size_t t = 0; t < tokens; t += step) {
      const AttentionInputs in = Inputs(start + t, std::min(step, tokens - t), out.data() + t * row());
      for (std::size_t s = 0; s < shares; ++s) {
        Attention(in, {in.rows() * s / shares, in.rows() * (s + 1) / shares}, scratch.data());
      }
    }
    return out;
  }
  std::vector<float> Reference(std::size_t start, std::size_t tokens) const {
    std::vector<float> out(tokens * row());
    reference::Attention(Inputs(start, tokens, out.data()));
    return out;
  }
  std::vector<float> Run() const { return Run(0, tokens_, tokens_, 1); }

 private:
  std::size_t row() const { return heads_ * shape_.head_dim; }

  std::size_t tokens_;
  std::size_t heads_;
  KvShape shape_;
  std::vector<float> q_;
  std::vector<float> k_;
  std::vector<float> v_;
  std::vector<std::vector<std::uint16_t>> pages_;
  std::vector<const std::byte*> chunks_;
};

TEST(Attention, MatchesTheReferenceAcrossShapesOnEveryTarget) {
  struct Case {
    std::size_t heads;
    KvShape shape;
  };
  for (const Case& c : {Case{9, {3, 64, 64}}, Case{4, {4, 16, 16}}, Case{8, {1, 128, 32}}, Case{2, {1, 80, 512}}}) {
    SCOPED_TRACE(c.shape.head_dim);
    const Sequence sequence(150, c.heads, c.shape);
    const std::vector<float> expected = sequence.Reference(0, 150);
    OnEachTarget([&](std::int64_t) { EXPECT_LT(LargestDifference(sequence.Run(), expected), 2e-5f); });
  }
}

TEST(Attention, ALoneKeyGivesItsValue) {
  Sequence sequence(1, 2, {1, 32, 16});
  sequence.SetValues(0, 0.75f);
  OnEachTarget([&](std::int64_t) { EXPECT_EQ(sequence.Run(), std::vector<float>(64, 0.75f)); });
}

TEST(Attention, AQuerysResultDoesNotDependOnChunksOrShares) {
  const std::size_t tokens = 201;
  const Sequence sequence(tokens, 9, {3, 64, 64});
  OnEachTarget([&](std::int64_t) {
    const std::vector<float> whole = sequence.Run();
    for (const std::size_t step : {std::size_t{1}, std::size_t{2}, std::size_t{7}, std::size_t{64}, std::size_t{100}}) {
      for (const std::size_t shares : {1, 2, 3, 5}) {
        ASSERT_TRUE(SameBits(sequence.Run(0, tokens, step, shares), whole)) << step << " tokens, " << shares;
      }
    }
  });
}

TEST(Attention, PageSizeDoesNotEnterIntoTheResult) {
  const std::vector<float> expected = Sequence(150, 4, {2, 32, 64}).Run();
  for (const std::size_t page_tokens : {16, 32, 128, 512}) {
    EXPECT_TRUE(SameBits(Sequence(150, 4, {2, 32, page_tokens}).Run(), expected)) << page_tokens;
  }
}

TEST(Attention, LaterTokensNeverReachEarlierOnes) {
  Sequence sequence(90, 4, {2, 32, 64});
  OnEachTarget([&](std::int64_t) {
    sequence.SetValues(80, 0.5f);
    const std::vector<float> before = sequence.Run(0, 90, 90, 1);
    sequence.SetValues(80, INFINITY);
    std::vector<float> after = sequence.Run(0, 90, 90, 1);
    EXPECT_FALSE(std::isfinite(after[80 * 128]));
    after.resize(80 * 128);
    EXPECT_TRUE(SameBits(after, {before.begin(), before.begin() + 80 * 128}));
  });
}

TEST(Attention, ScoresFarApartStayFinite) {
  const Sequence sequence(130, 2, {1, 32, 64}, 60.0f);
  const std::vector<float> expected = sequence.Reference(0, 130);
  // Scores reach thousands, where their own rounding is about 1e-3.
  OnEachTarget([&](std::int64_t) { EXPECT_LT(LargestDifference(sequence.Run(), expected), 1e-2f); });
}

TEST(Attention, TargetsWithFusedMultiplyAddAgreeBitForBit) {
  const Sequence sequence(150, 9, {3, 64, 64});
  std::optional<std::vector<float>> first;
  OnEachTarget([&](std::int64_t target) {
    if ((target & kFusedTargets) == 0) return;
    const std::vector<float> out = sequence.Run();
    if (!first.has_value()) first = out;
    EXPECT_TRUE(SameBits(out, *first));
  });
}

}  // namespace
}  // namespace kvist::kernels
