// Causal attention over paged F16 KV. Keys are taken in tiles of 64 aligned to absolute positions, with the softmax
// kept up to date tile by tile, so a query meets its keys in one order whatever the chunking.
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <utility>

#include "kernels/float16.h"
#include "kernels/ops.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention.cc"
// The order matters: foreach_target.h before anything of Highway's.
// clang-format off
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "hwy/contrib/math/math-inl.h"
#include "kernels/cpu/dequantize-inl.h"
#include "kernels/cpu/panel-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace kvist::kernels::HWY_NAMESPACE {

constexpr std::size_t kTileKeys = 64;
// Query rows that share one conversion of a tile to floats; their scores (48 KiB) fit the second-level cache.
constexpr std::size_t kQueryRows = 192;
// The softmax denominator is kept as this many partial sums (by key position), added up at the end.
constexpr std::size_t kSumLanes = 16;

constexpr std::size_t PaddedDim(std::size_t head_dim) { return (head_dim + 31) / 32 * 32; }

struct Scratch {
  Scratch(float* base, std::size_t head_dim) : dim(head_dim), padded(PaddedDim(head_dim)) {
    const auto take = [&base](std::size_t n) { return std::exchange(base, base + n); };
    keys = take(dim * kTileKeys);
    values = take(kTileKeys * padded);
    q = take(kQueryRows * dim);
    scores = take(kQueryRows * kTileKeys);
    out = take(kQueryRows * padded);
    sums = take(kQueryRows * kSumLanes);
    top = take(kQueryRows);
    decay = take(kQueryRows);
  }

  std::size_t dim;
  std::size_t padded;
  float* keys;    // [dim][kTileKeys]
  float* values;  // [kTileKeys][padded]
  float* q;       // [kQueryRows][dim], divided by sqrt(dim)
  float* scores;  // [kQueryRows][kTileKeys]
  float* out;     // [kQueryRows][padded], unnormalised
  float* sums;    // [kQueryRows][kSumLanes]
  float* top;     // [kQueryRows], highest score so far
  float* decay;   // [kQueryRows], what the newest tile's top makes of the sums before it
};

// A run of query rows of one KV head: row r is token (begin + r) / group, query head (begin + r) % group.
struct Rows {
  std::size_t kv_head;
  std::size_t begin;
  std::size_t count;
};

HWY_INLINE std::size_t PositionOf(const AttentionInputs& in, const Rows& rows, std::size_t r) {
  return in.start + (rows.begin + r) / in.group();
}
HWY_INLINE std::size_t OffsetOf(const AttentionInputs& in, const Rows& rows, std::size_t r) {
  const std::size_t token = (rows.begin + r) / in.group();
  const std::size_t head = rows.kv_head * in.group() + (rows.begin + r) % in.group();
  return (token * in.heads + head) * in.kv.head_dim;
}

// Converts keys [first, first + count) of the tile that starts at `first`. Score lanes beyond count are whatever the
// page holds there, or stale: they are masked before use. Values beyond count are not touched.
void LoadTile(const AttentionInputs& in, std::size_t kv_head, std::size_t first, std::size_t count, Scratch& s) {
  const KvShape& kv = in.kv;
  const std::size_t run = std::min(kTileKeys, kv.page_tokens);
  for (std::size_t at = 0; at < count; at += run) {
    const std::byte* chunk = in.pages[(first + at) / kv.page_tokens];
    const std::size_t slot = (first + at) % kv.page_tokens;
    const std::byte* k = chunk + (kv_head * kv.head_dim * kv.page_tokens + slot) * sizeof(std::uint16_t);
    for (std::size_t d = 0; d < kv.head_dim; ++d) {
      DequantizeF16(k + d * kv.page_tokens * sizeof(std::uint16_t), run, s.keys + d * kTileKeys + at);
    }
    const std::byte* v =
        chunk + kv.half_bytes() + (kv_head * kv.page_tokens + slot) * kv.head_dim * sizeof(std::uint16_t);
    for (std::size_t i = 0; i < std::min(run, count - at); ++i) {
      DequantizeAny(TensorType::kF16, v + i * kv.head_dim * sizeof(std::uint16_t), kv.head_dim,
                    s.values + (at + i) * s.padded);
    }
  }
}

// scores = q . keys for rows [first, end)
void Scores(std::size_t first, std::size_t end, Scratch& s) {
  for (std::size_t r = first; r < end; r += kPanelRows) {
    for (std::size_t c = 0; c < kTileKeys; c += kPanelColumns) {
      PanelRows<Init::kZero>(std::min(kPanelRows, end - r), PanelInputs{.x = s.q + r * s.dim,
                                                                        .x_stride = s.dim,
                                                                        .w = s.keys + c,
                                                                        .w_stride = kTileKeys,
                                                                        .depth = s.dim,
                                                                        .y = s.scores + r * kTileKeys + c,
                                                                        .y_stride = kTileKeys,
                                                                        .scale = nullptr});
    }
  }
}

// Turns a row's scores into weights relative to its new top; `visible` of them count.
HWY_INLINE void Soften(std::size_t r, std::size_t visible, Scratch& s) {
  const DF d;
  float* scores = s.scores + r * kTileKeys;
  for (std::size_t i = visible; i < kTileKeys; ++i) scores[i] = -std::numeric_limits<float>::infinity();
  VF top = hn::Set(d, s.top[r]);
  for (std::size_t i = 0; i < kTileKeys; i += kLanes) top = hn::Max(top, hn::LoadU(d, scores + i));
  const float new_top = hn::GetLane(hn::MaxOfLanes(d, top));
  const VF shift = hn::Set(d, new_top);
  const VF decay = hn::Exp(d, hn::Sub(hn::Set(d, s.top[r]), shift));
  s.top[r] = new_top;
  s.decay[r] = hn::GetLane(decay);
  float* sums = s.sums + r * kSumLanes;
  for (std::size_t i = 0; i < kSumLanes; i += kLanes) hn::StoreU(hn::Mul(hn::LoadU(d, sums + i), decay), d, sums + i);
  for (std::size_t i = 0; i < kTileKeys; i += kLanes) {
    const VF weight = hn::Exp(d, hn::Sub(hn::LoadU(d, scores + i), shift));
    hn::StoreU(weight, d, scores + i);
    float* sum = sums + i % kSumLanes;
    hn::StoreU(hn::Add(hn::LoadU(d, sum), weight), d, sum);
  }
}

HWY_INLINE PanelInputs ValueInputs(Scratch& s, std::size_t r, std::size_t column, std::size_t key, std::size_t depth) {
  return PanelInputs{.x = s.scores + r * kTileKeys + key,
                     .x_stride = kTileKeys,
                     .w = s.values + key * s.padded + column,
                     .w_stride = s.padded,
                     .depth = depth,
                     .y = s.out + r * s.padded + column,
                     .y_stride = s.padded,
                     .scale = s.decay + r};
}

// out = out * decay + weights . values. A row's masked keys are left out rather than multiplied by zero: the values of
// later tokens must not reach it at all (0 * inf, or a zero's sign).
void Values(const AttentionInputs& in, const Rows& rows, std::size_t first, std::size_t tile, Scratch& s) {
  for (std::size_t r = first; r < rows.count; r += kPanelRows) {
    const std::size_t n = std::min(kPanelRows, rows.count - r);
    const std::size_t shared = std::min(kTileKeys, PositionOf(in, rows, r) - tile + 1);  // positions ascend with r
    for (std::size_t c = 0; c < s.padded; c += kPanelColumns) {
      PanelRows<Init::kScaled>(n, ValueInputs(s, r, c, 0, shared));
    }
    for (std::size_t i = 1; i < n; ++i) {
      const std::size_t own = std::min(kTileKeys, PositionOf(in, rows, r + i) - tile + 1);
      if (own == shared) continue;
      for (std::size_t c = 0; c < s.padded; c += kPanelColumns) {
        PanelKernel<1, Init::kLoad>(ValueInputs(s, r + i, c, shared, own - shared));
      }
    }
  }
}

void Begin(const AttentionInputs& in, const Rows& rows, Scratch& s) {
  const float scale = 1.0f / std::sqrt(static_cast<float>(s.dim));
  for (std::size_t r = 0; r < rows.count; ++r) {
    const float* q = in.q + OffsetOf(in, rows, r);
    for (std::size_t d = 0; d < s.dim; ++d) s.q[r * s.dim + d] = q[d] * scale;
    s.top[r] = -std::numeric_limits<float>::infinity();
  }
  std::memset(s.out, 0, rows.count * s.padded * sizeof(float));
  std::memset(s.sums, 0, rows.count * kSumLanes * sizeof(float));
}

void Finish(const AttentionInputs& in, const Rows& rows, Scratch& s) {
  for (std::size_t r = 0; r < rows.count; ++r) {
    float sum = 0;
    for (std::size_t i = 0; i < kSumLanes; ++i) sum += s.sums[r * kSumLanes + i];
    const float inverse = 1.0f / sum;
    float* out = in.out + OffsetOf(in, rows, r);
    for (std::size_t d = 0; d < s.dim; ++d) out[d] = s.out[r * s.padded + d] * inverse;
  }
}

void AttendRows(const AttentionInputs& in, const Rows& rows, Scratch& s) {
  Begin(in, rows, s);
  const std::size_t keys = PositionOf(in, rows, rows.count - 1) + 1;
  for (std::size_t tile = 0; tile < keys; tile += kTileKeys) {
    LoadTile(in, rows.kv_head, tile, std::min(kTileKeys, keys - tile), s);
    std::size_t first = 0;
    while (PositionOf(in, rows, first) < tile) ++first;
    Scores(first, rows.count, s);
    for (std::size_t r = first; r < rows.count; ++r) {
      Soften(r, std::min(kTileKeys, PositionOf(in, rows, r) - tile + 1), s);
    }
    Values(in, rows, first, tile, s);
  }
  Finish(in, rows, s);
}

void Attention(const AttentionInputs& in, RowRange range, float* scratch) {
  Scratch s(scratch, in.kv.head_dim);
  // Never read uninitialised: score lanes past the last page, and the values' padding.
  std::memset(s.keys, 0, s.dim * kTileKeys * sizeof(float));
  std::memset(s.values, 0, kTileKeys * s.padded * sizeof(float));
  const std::size_t per_head = in.tokens * in.group();
  for (std::size_t row = range.begin; row < range.end;) {
    const std::size_t head_end = (row / per_head + 1) * per_head;
    const std::size_t count = std::min({kQueryRows, head_end - row, range.end - row});
    AttendRows(in, Rows{.kv_head = row / per_head, .begin = row % per_head, .count = count}, s);
    row += count;
  }
}

std::size_t AttentionScratchFloats(std::size_t head_dim) {
  const std::size_t padded = PaddedDim(head_dim);
  return head_dim * kTileKeys + kTileKeys * padded + kQueryRows * (head_dim + kTileKeys + padded + kSumLanes + 2);
}

void SiluMul(float* gate, const float* up, std::size_t n) {
  const DF d;
  const VF one = hn::Set(d, 1.0f);
  // Highway's Exp wraps round above about 88.7; e^88 makes the quotient as good as zero.
  const VF most = hn::Set(d, 88.0f);
  const auto silu = [&](VF g, VF u) HWY_ATTR {
    return hn::Mul(hn::Div(g, hn::Add(one, hn::Exp(d, hn::Min(hn::Neg(g), most)))), u);
  };
  std::size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) hn::StoreU(silu(hn::LoadU(d, gate + i), hn::LoadU(d, up + i)), d, gate + i);
  for (; i < n; ++i) gate[i] = hn::GetLane(silu(hn::Set(d, gate[i]), hn::Set(d, up[i])));
}

}  // namespace kvist::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvist::kernels {

HWY_EXPORT(Attention);
HWY_EXPORT(AttentionScratchFloats);
HWY_EXPORT(SiluMul);

std::size_t AttentionScratchFloats(std::size_t head_dim) {
  return HWY_DYNAMIC_DISPATCH(AttentionScratchFloats)(head_dim);
}

void Attention(const AttentionInputs& in, RowRange rows, float* scratch) {
  HWY_DYNAMIC_DISPATCH(Attention)(in, rows, scratch);
}

void SiluMul(float* gate, const float* up, std::size_t n) { HWY_DYNAMIC_DISPATCH(SiluMul)(gate, up, n); }

}  // namespace kvist::kernels
#endif  // HWY_ONCE
