// The operations too small to need a vector target of their own: plain loops, the same bits everywhere.
#include <array>
#include <cmath>
#include <cstring>

#include "kernels/float16.h"
#include "kernels/ops.h"

namespace kvist::kernels {

void RmsNorm(const float* x, const float* weight, float epsilon, std::size_t n, float* y) {
  // Eight sums in double, added up in a fixed order: independent chains keep the adder busy.
  std::array<double, 8> sums{};
  for (std::size_t i = 0; i < n; ++i) sums[i % 8] += double{x[i]} * double{x[i]};
  const double squares = ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
  const auto inverse = static_cast<float>(1.0 / std::sqrt(squares / static_cast<double>(n) + double{epsilon}));
  for (std::size_t i = 0; i < n; ++i) y[i] = x[i] * inverse * weight[i];
}

void Rope(float* x, std::size_t heads, std::size_t head_dim, std::size_t pairs, const float* cos_sin) {
  for (std::size_t h = 0; h < heads; ++h, x += head_dim) {
    for (std::size_t i = 0; i < pairs; ++i) {
      const float a = x[2 * i];
      const float b = x[2 * i + 1];
      const float cosine = cos_sin[2 * i];
      const float sine = cos_sin[2 * i + 1];
      x[2 * i] = a * cosine - b * sine;
      x[2 * i + 1] = a * sine + b * cosine;
    }
  }
}

void Add(float* x, const float* y, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) x[i] += y[i];
}

void WriteKv(const KvShape& shape, const float* k, const float* v, std::size_t slot, std::byte* layer_chunk) {
  const auto put = [layer_chunk](std::size_t byte, float value) {
    const std::uint16_t half = F32ToF16(value);
    std::memcpy(layer_chunk + byte, &half, sizeof(half));
  };
  for (std::size_t h = 0; h < shape.kv_heads; ++h) {
    for (std::size_t d = 0; d < shape.head_dim; ++d) {
      const std::size_t i = h * shape.head_dim + d;
      put((i * shape.page_tokens + slot) * sizeof(std::uint16_t), k[i]);
      put(shape.half_bytes() + ((h * shape.page_tokens + slot) * shape.head_dim + d) * sizeof(std::uint16_t), v[i]);
    }
  }
}

}  // namespace kvist::kernels
