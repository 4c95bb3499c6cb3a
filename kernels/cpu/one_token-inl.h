// MatMul of a single token, the whole of decoding: reading and unpacking the weights is the work. For the common types
// they go from bytes to the sums in registers, without a panel in between; the operations and their order are those
// of Pack followed by PanelKernel, so the bits are too.

#if defined(KVIST_KERNELS_CPU_ONE_TOKEN_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVIST_KERNELS_CPU_ONE_TOKEN_INL_H_
#undef KVIST_KERNELS_CPU_ONE_TOKEN_INL_H_
#else
#define KVIST_KERNELS_CPU_ONE_TOKEN_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernels/cpu/dequantize-inl.h"
#include "kernels/cpu/pack-inl.h"
#include "kernels/cpu/panel-inl.h"
#include "kernels/ops.h"

HWY_BEFORE_NAMESPACE();
namespace kvist::kernels::HWY_NAMESPACE {

inline constexpr std::size_t kBlockVectors = kMatMulRowBlock / kLanes;

// One sum per row of a block of 32.
struct RowSums {
  VF v[kBlockVectors];
};

HWY_INLINE void ClearSums(RowSums& sums) {
  HWY_UNROLL(8)
  for (std::size_t v = 0; v < kBlockVectors; ++v) sums.v[v] = hn::Zero(DF());
}
HWY_INLINE void LoadSums(const float* y, RowSums& sums) {
  HWY_UNROLL(8)
  for (std::size_t v = 0; v < kBlockVectors; ++v) sums.v[v] = hn::LoadU(DF(), y + v * kLanes);
}
HWY_INLINE void StoreSums(const RowSums& sums, float* y) {
  HWY_UNROLL(8)
  for (std::size_t v = 0; v < kBlockVectors; ++v) hn::StoreU(sums.v[v], DF(), y + v * kLanes);
}

// Continues the sums by a packed panel: more independent chains than PanelKernel<1> has, to cover their latency.
HWY_INLINE void SumPanel(const float* x, std::size_t depth, const Panel& panel, RowSums& sums) {
  for (std::size_t k = 0; k < depth; ++k) {
    const VF value = hn::Set(DF(), x[k]);
    HWY_UNROLL(8)
    for (std::size_t v = 0; v < kBlockVectors; ++v) {
      const float* w = panel.values + (v / 2 * kPanelDepth + k) * kPanelColumns + v % 2 * kLanes;
      sums.v[v] = hn::MulAdd(value, hn::Load(DF(), w), sums.v[v]);
    }
  }
}

// 16 columns from the low or the high nibbles.
template <bool kHigh>
HWY_INLINE void SumHalf(const NibbleColumns& columns, const float* x, RowSums& sums) {
  const VU32 mask = hn::Set(DU32(), 15u);
  const std::uint8_t* bytes = columns.bytes;
  for (std::size_t i = 0; i < 16; ++i, bytes += kMatMulRowBlock) {
    const VF value = hn::Set(DF(), x[i]);
    HWY_UNROLL(8)
    for (std::size_t v = 0; v < kBlockVectors; ++v) {
      const VU32 pair = hn::PromoteTo(DU32(), hn::LoadU(DU8(), bytes + v * kLanes));
      const VU32 q = kHigh ? hn::ShiftRight<4>(pair) : hn::And(pair, mask);
      const VF scale = hn::Load(DF(), columns.scale + v * kLanes);
      const VF offset = hn::Load(DF(), columns.offset + v * kLanes);
      sums.v[v] = hn::MulAdd(value, hn::MulAdd(ToFloat(q), scale, offset), sums.v[v]);
    }
  }
}

// One block of each of 32 rows of Q4_0 or Q4_1, against 32 of the token's values.
HWY_INLINE void SumNibbles(const std::byte* blocks, std::size_t row_bytes, bool has_offset, const float* x,
                           RowSums& sums) {
  NibbleColumns columns;
  LoadNibbles(blocks, row_bytes, has_offset, columns);
  SumHalf<false>(columns, x, sums);
  SumHalf<true>(columns, x + 16, sums);
}

// As SumNibbles, of Q8_0.
HWY_INLINE void SumBytes(const std::byte* blocks, std::size_t row_bytes, const float* x, RowSums& sums) {
  ByteColumns columns;
  LoadBytes32(blocks, row_bytes, columns);
  for (std::size_t i = 0; i < 32; ++i) {
    const VF value = hn::Set(DF(), x[i]);
    const auto* bytes = reinterpret_cast<const std::int8_t*>(columns.bytes + i * kMatMulRowBlock);
    HWY_UNROLL(8)
    for (std::size_t v = 0; v < kBlockVectors; ++v) {
      const VF q = hn::ConvertTo(DF(), hn::PromoteTo(DI32(), hn::LoadU(DI8(), bytes + v * kLanes)));
      const VF scale = hn::Load(DF(), columns.scale + v * kLanes);
      sums.v[v] = hn::MulAdd(value, hn::Mul(q, scale), sums.v[v]);
    }
  }
}

// y[r] for a whole block of 32 rows from `row`. False: a type without a way of its own.
HWY_INLINE bool MultiplyOneToken(const Matrix& w, std::size_t row, const float* x, float* y) {
  if (!HasByteColumns(w.type)) return false;
  const std::size_t row_bytes = w.row_bytes();
  const std::size_t block_bytes = InfoOf(w.type).block_bytes;
  const std::byte* blocks = w.data + row * row_bytes;
  RowSums sums;
  ClearSums(sums);
  // The 32 rows are one run of memory but are walked side by side, which hardware does not see through: the next 32 are
  // asked for here, a step's worth at each step. (Past the last row a prefetch is without effect.)
  const std::size_t step_bytes = kMatMulRowBlock * block_bytes;
  const std::byte* ahead = blocks + kMatMulRowBlock * row_bytes;
  for (std::size_t k = 0; k < w.cols; k += 32, blocks += block_bytes, ahead += step_bytes) {
    for (std::size_t line = 0; line < step_bytes; line += 64) hwy::Prefetch(ahead + line);
    if (w.type == TensorType::kQ8_0) {
      SumBytes(blocks, row_bytes, x + k, sums);
    } else {
      SumNibbles(blocks, row_bytes, w.type == TensorType::kQ4_1, x + k, sums);
    }
  }
  StoreSums(sums, y);
  return true;
}

}  // namespace kvist::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
