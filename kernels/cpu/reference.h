// Plain scalar twins of kernels/ops.h, written for reading, in double where it matters. The tests' yardstick; slow.
// Pure; any thread.
#pragma once

#include <cstddef>

#include "kernels/ops.h"

namespace kvist::kernels::reference {

void Dequantize(TensorType type, const std::byte* data, std::size_t n, float* out);
void MatMul(const Matrix& w, const float* x, std::size_t tokens, float* y /* [tokens][w.rows] */);
void RmsNorm(const float* x, const float* weight, float epsilon, std::size_t n, float* y);
void Rope(float* x, std::size_t heads, std::size_t head_dim, std::size_t pairs, const float* cos_sin);
void SiluMul(float* gate, const float* up, std::size_t n);
void Attention(const AttentionInputs& in);

}  // namespace kvist::kernels::reference
