// The register kernel under MatMul and Attention, compiled once per target (foreach_target.h).
//
//   y[t][c] = init + sum over k ascending of x[t][k] * w[k][c]
//
// Lanes hold neighbouring outputs c, so every output is one sequential chain of multiply-adds whatever the vector
// width and however many rows t are computed together. Splitting k over calls (init = y so far) continues the chain.

#if defined(KVIST_KERNELS_CPU_PANEL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVIST_KERNELS_CPU_PANEL_INL_H_
#undef KVIST_KERNELS_CPU_PANEL_INL_H_
#else
#define KVIST_KERNELS_CPU_PANEL_INL_H_
#endif

#include <algorithm>
#include <cstddef>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace kvist::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::CappedTag<float, 16>;
using VF = hn::Vec<DF>;
inline constexpr std::size_t kLanes = hn::MaxLanes(DF());
// Outputs computed together: two vectors of columns by as many rows as the registers hold accumulators for.
inline constexpr std::size_t kPanelColumns = 2 * kLanes;
inline constexpr std::size_t kPanelRows = kLanes >= 16 ? 12 : 6;

enum class Init {
  kZero,
  kLoad,    // from y
  kScaled,  // from y * scale[t]
};

struct PanelInputs {
  const float* x;  // [rows][x_stride]
  std::size_t x_stride;
  const float* w;  // [depth][w_stride]
  std::size_t w_stride;
  std::size_t depth;
  float* y;  // [rows][y_stride]
  std::size_t y_stride;
  const float* scale;  // [rows]; only for Init::kScaled
};

// kPanelColumns columns of kRows rows.
template <std::size_t kRows, Init kInit>
HWY_INLINE void PanelKernel(const PanelInputs& in) {
  const DF d;
  VF low[kRows];
  VF high[kRows];
  HWY_UNROLL(12)
  for (std::size_t t = 0; t < kRows; ++t) {
    if constexpr (kInit == Init::kZero) {
      low[t] = hn::Zero(d);
      high[t] = hn::Zero(d);
    } else {
      low[t] = hn::LoadU(d, in.y + t * in.y_stride);
      high[t] = hn::LoadU(d, in.y + t * in.y_stride + kLanes);
    }
    if constexpr (kInit == Init::kScaled) {
      const VF scale = hn::Set(d, in.scale[t]);
      low[t] = hn::Mul(low[t], scale);
      high[t] = hn::Mul(high[t], scale);
    }
  }
  const float* x = in.x;
  const float* w = in.w;
  const std::size_t x_stride = in.x_stride;
  for (std::size_t k = 0; k < in.depth; ++k, w += in.w_stride) {
    const VF w_low = hn::LoadU(d, w);
    const VF w_high = hn::LoadU(d, w + kLanes);
    HWY_UNROLL(12)
    for (std::size_t t = 0; t < kRows; ++t) {
      const VF value = hn::Set(d, x[t * x_stride + k]);
      low[t] = hn::MulAdd(value, w_low, low[t]);
      high[t] = hn::MulAdd(value, w_high, high[t]);
    }
  }
  HWY_UNROLL(12)
  for (std::size_t t = 0; t < kRows; ++t) {
    hn::StoreU(low[t], d, in.y + t * in.y_stride);
    hn::StoreU(high[t], d, in.y + t * in.y_stride + kLanes);
  }
}

// As PanelKernel, for 1..kPanelRows rows.
template <Init kInit>
HWY_INLINE void PanelRows(std::size_t rows, const PanelInputs& in) {
  switch (rows) {
    case 1:
      return PanelKernel<1, kInit>(in);
    case 2:
      return PanelKernel<2, kInit>(in);
    case 3:
      return PanelKernel<3, kInit>(in);
    case 4:
      return PanelKernel<4, kInit>(in);
    case 5:
      return PanelKernel<5, kInit>(in);
    case 6:
      return PanelKernel<6, kInit>(in);
    default:
      break;
  }
  if constexpr (kPanelRows > 6) {
    switch (rows) {
      case 7:
        return PanelKernel<7, kInit>(in);
      case 8:
        return PanelKernel<8, kInit>(in);
      case 9:
        return PanelKernel<9, kInit>(in);
      case 10:
        return PanelKernel<10, kInit>(in);
      case 11:
        return PanelKernel<11, kInit>(in);
      default:
        return PanelKernel<12, kInit>(in);
    }
  }
}

}  // namespace kvist::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
