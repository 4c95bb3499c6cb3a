// MatMul over quantised weights. A block of 32 weight rows is dequantised and transposed, 256 columns at a time, into
// a panel that stays in cache while every token of the call passes over it.
#include <cstddef>
#include <cstring>

#include "kernels/ops.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/matmul.cc"
// The order matters: foreach_target.h before anything of Highway's.
// clang-format off
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/dequantize-inl.h"
#include "kernels/cpu/one_token-inl.h"
#include "kernels/cpu/pack-inl.h"
#include "kernels/cpu/panel-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace kvist::kernels::HWY_NAMESPACE {

// Below this many tokens a pass is bound by reading weights, which then happens strictly in file order.
constexpr std::size_t kStreamingTokens = 32;

// One token against a whole block of rows, continued by the panel's columns.
template <Init kInit>
HWY_INLINE void OneToken(const float* x, std::size_t depth, const Panel& panel, float* y) {
  RowSums sums;
  if constexpr (kInit == Init::kZero) {
    ClearSums(sums);
  } else {
    LoadSums(y, sums);
  }
  SumPanel(x, depth, panel, sums);
  StoreSums(sums, y);
}

struct Call {
  const Matrix& w;
  const float* x;
  std::size_t tokens;
  float* y;
  std::size_t y_stride;
};

// y of all tokens and a whole block of rows, continued by the panel's columns.
template <Init kInit>
void MultiplyBlock(const Call& call, std::size_t row, std::size_t k0, std::size_t depth, const Panel& panel) {
  if (call.tokens == 1) return OneToken<kInit>(call.x + k0, depth, panel, call.y + row);
  for (std::size_t p = 0; p < kBlockPanels; ++p) {
    for (std::size_t t = 0; t < call.tokens; t += kPanelRows) {
      PanelRows<kInit>(std::min(kPanelRows, call.tokens - t),
                       PanelInputs{.x = call.x + t * call.w.cols + k0,
                                   .x_stride = call.w.cols,
                                   .w = panel.values + p * kPanelDepth * kPanelColumns,
                                   .w_stride = kPanelColumns,
                                   .depth = depth,
                                   .y = call.y + t * call.y_stride + row + p * kPanelColumns,
                                   .y_stride = call.y_stride,
                                   .scale = nullptr});
    }
  }
}

// As MultiplyBlock for a block cut short by the end of the rows: through a whole block of outputs on the side.
void MultiplyPart(const Call& call, RowRange rows, std::size_t k0, std::size_t depth, const Panel& panel) {
  HWY_ALIGN float side[kMatMulRowBlock];
  const std::size_t bytes = (rows.end - rows.begin) * sizeof(float);
  for (std::size_t t = 0; t < call.tokens; ++t) {
    float* y = call.y + t * call.y_stride + rows.begin;
    std::memset(side, 0, sizeof(side));
    if (k0 != 0) std::memcpy(side, y, bytes);
    OneToken<Init::kLoad>(call.x + t * call.w.cols + k0, depth, panel, side);
    std::memcpy(y, side, bytes);
  }
}

void Step(const Call& call, RowRange rows, std::size_t row, std::size_t k0, Panel& panel) {
  const std::size_t depth = std::min(kPanelDepth, call.w.cols - k0);
  const std::size_t count = std::min(kMatMulRowBlock, rows.end - row);
  Pack(call.w, row, count, k0, depth, panel);
  if (count < kMatMulRowBlock) return MultiplyPart(call, {row, row + count}, k0, depth, panel);
  if (k0 == 0) return MultiplyBlock<Init::kZero>(call, row, k0, depth, panel);
  MultiplyBlock<Init::kLoad>(call, row, k0, depth, panel);
}

void MatMul(const Matrix& w, const float* x, std::size_t tokens, RowRange rows, float* y, std::size_t y_stride) {
  const Call call{w, x, tokens, y, y_stride};
  Panel panel;
  if (tokens < kStreamingTokens) {
    for (std::size_t row = rows.begin; row < rows.end; row += kMatMulRowBlock) {
      const bool whole = rows.end - row >= kMatMulRowBlock;
      if (tokens == 1 && whole && MultiplyOneToken(w, row, x, y + row)) continue;
      for (std::size_t k0 = 0; k0 < w.cols; k0 += kPanelDepth) Step(call, rows, row, k0, panel);
    }
    return;
  }
  // Columns outermost: the tokens' slice of 256 columns stays in the second-level cache for all rows.
  for (std::size_t k0 = 0; k0 < w.cols; k0 += kPanelDepth) {
    for (std::size_t row = rows.begin; row < rows.end; row += kMatMulRowBlock) Step(call, rows, row, k0, panel);
  }
}

void Dequantize(TensorType type, const std::byte* data, std::size_t n, float* out) {
  DequantizeAny(type, data, n, out);
}

std::string_view Target() { return hwy::TargetName(HWY_TARGET); }

}  // namespace kvist::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvist::kernels {

HWY_EXPORT(MatMul);
HWY_EXPORT(Dequantize);
HWY_EXPORT(Target);

void MatMul(const Matrix& w, const float* x, std::size_t tokens, RowRange rows, float* y, std::size_t y_stride) {
  HWY_DYNAMIC_DISPATCH(MatMul)(w, x, tokens, rows, y, y_stride);
}

void Dequantize(TensorType type, const std::byte* data, std::size_t n, float* out) {
  HWY_DYNAMIC_DISPATCH(Dequantize)(type, data, n, out);
}

std::string_view TargetName() { return HWY_DYNAMIC_DISPATCH(Target)(); }

}  // namespace kvist::kernels
#endif  // HWY_ONCE
