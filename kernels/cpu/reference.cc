#include "kernels/cpu/reference.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/float16.h"

namespace kvist::kernels::reference {
namespace {

std::uint8_t U8(const std::byte* p, std::size_t i) { return std::to_integer<std::uint8_t>(p[i]); }
std::int8_t I8(const std::byte* p, std::size_t i) { return static_cast<std::int8_t>(U8(p, i)); }
std::uint16_t U16(const std::byte* p) { return static_cast<std::uint16_t>(U8(p, 0) | U8(p, 1) << 8); }

void Q4Block(const std::byte* nibbles, float scale, int zero, float offset, float* out) {
  for (std::size_t i = 0; i < 16; ++i) {
    out[i] = scale * static_cast<float>((U8(nibbles, i) & 15) - zero) + offset;
    out[i + 16] = scale * static_cast<float>((U8(nibbles, i) >> 4) - zero) + offset;
  }
}

// Eight 6-bit scales and eight 6-bit minima in 12 bytes: the first four of each in the low bits of bytes 0..7, the
// others' low nibbles in bytes 8..11 and their upper two bits on top of bytes 0..7.
void Q4KScale(const std::byte* packed, std::size_t j, int* scale, int* minimum) {
  if (j < 4) {
    *scale = U8(packed, j) & 63;
    *minimum = U8(packed, j + 4) & 63;
    return;
  }
  *scale = (U8(packed, j + 4) & 15) | (U8(packed, j - 4) >> 6) << 4;
  *minimum = (U8(packed, j + 4) >> 4) | (U8(packed, j) >> 6) << 4;
}

void Q4KBlock(const std::byte* block, float* out) {
  const float d = F16ToF32(U16(block));
  const float dmin = F16ToF32(U16(block + 2));
  for (std::size_t j = 0; j < 8; ++j) {
    int scale = 0;
    int minimum = 0;
    Q4KScale(block + 4, j, &scale, &minimum);
    const std::byte* bytes = block + 16 + j / 2 * 32;
    for (std::size_t i = 0; i < 32; ++i) {
      const int q = j % 2 == 0 ? U8(bytes, i) & 15 : U8(bytes, i) >> 4;
      out[j * 32 + i] = d * static_cast<float>(scale) * static_cast<float>(q) - dmin * static_cast<float>(minimum);
    }
  }
}

void Q6KBlock(const std::byte* block, float* out) {
  const float d = F16ToF32(U16(block + 208));
  for (std::size_t e = 0; e < 256; ++e) {
    const std::size_t half = e / 128;
    const std::size_t quarter = e % 128 / 32;
    const std::size_t i = e % 32;
    const std::uint8_t low_byte = U8(block, half * 64 + quarter % 2 * 32 + i);
    const int low = quarter < 2 ? low_byte & 15 : low_byte >> 4;
    const int high = U8(block + 128, half * 32 + i) >> (2 * quarter) & 3;
    const int scale = I8(block + 192, half * 8 + quarter * 2 + i / 16);
    out[e] = d * static_cast<float>(scale) * static_cast<float>((low | high << 4) - 32);
  }
}

float Half(const std::byte* base, std::size_t index) { return F16ToF32(U16(base + 2 * index)); }

}  // namespace

void Dequantize(TensorType type, const std::byte* data, std::size_t n, float* out) {
  const TensorTypeInfo& info = InfoOf(type);
  for (std::size_t i = 0; i < n; i += info.block_elements, data += info.block_bytes, out += info.block_elements) {
    switch (type) {
      case TensorType::kF32:
        std::memcpy(out, data, sizeof(float));
        break;
      case TensorType::kF16:
        *out = F16ToF32(U16(data));
        break;
      case TensorType::kBF16:
        *out = BF16ToF32(U16(data));
        break;
      case TensorType::kQ8_0:
        for (std::size_t j = 0; j < 32; ++j) out[j] = F16ToF32(U16(data)) * static_cast<float>(I8(data, 2 + j));
        break;
      case TensorType::kQ4_0:
        Q4Block(data + 2, F16ToF32(U16(data)), 8, 0.0f, out);
        break;
      case TensorType::kQ4_1:
        Q4Block(data + 4, F16ToF32(U16(data)), 0, F16ToF32(U16(data + 2)), out);
        break;
      case TensorType::kQ4_K:
        Q4KBlock(data, out);
        break;
      case TensorType::kQ6_K:
        Q6KBlock(data, out);
        break;
    }
  }
}

void MatMul(const Matrix& w, const float* x, std::size_t tokens, float* y) {
  std::vector<float> row(w.cols);
  for (std::size_t r = 0; r < w.rows; ++r) {
    reference::Dequantize(w.type, w.data + r * w.row_bytes(), w.cols, row.data());
    for (std::size_t t = 0; t < tokens; ++t) {
      double sum = 0;
      for (std::size_t k = 0; k < w.cols; ++k) sum += double{x[t * w.cols + k]} * row[k];
      y[t * w.rows + r] = static_cast<float>(sum);
    }
  }
}

void RmsNorm(const float* x, const float* weight, float epsilon, std::size_t n, float* y) {
  double squares = 0;
  for (std::size_t i = 0; i < n; ++i) squares += double{x[i]} * x[i];
  const double inverse = 1.0 / std::sqrt(squares / static_cast<double>(n) + epsilon);
  for (std::size_t i = 0; i < n; ++i) y[i] = static_cast<float>(x[i] * inverse * weight[i]);
}

void Rope(float* x, std::size_t heads, std::size_t head_dim, std::size_t pairs, const float* cos_sin) {
  for (std::size_t h = 0; h < heads; ++h) {
    for (std::size_t i = 0; i < pairs; ++i) {
      float* pair = x + h * head_dim + 2 * i;
      const double a = pair[0];
      const double b = pair[1];
      pair[0] = static_cast<float>(a * cos_sin[2 * i] - b * cos_sin[2 * i + 1]);
      pair[1] = static_cast<float>(a * cos_sin[2 * i + 1] + b * cos_sin[2 * i]);
    }
  }
}

void SiluMul(float* gate, const float* up, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) {
    gate[i] = static_cast<float>(gate[i] / (1.0 + std::exp(-double{gate[i]})) * up[i]);
  }
}

void Attention(const AttentionInputs& in) {
  const KvShape& kv = in.kv;
  const auto k_at = [&](std::size_t head, std::size_t position, std::size_t d) {
    const std::size_t slot = position % kv.page_tokens;
    return Half(in.pages[position / kv.page_tokens], (head * kv.head_dim + d) * kv.page_tokens + slot);
  };
  const auto v_at = [&](std::size_t head, std::size_t position, std::size_t d) {
    const std::size_t slot = position % kv.page_tokens;
    return Half(in.pages[position / kv.page_tokens] + kv.half_bytes(),
                (head * kv.page_tokens + slot) * kv.head_dim + d);
  };
  for (std::size_t t = 0; t < in.tokens; ++t) {
    for (std::size_t h = 0; h < in.heads; ++h) {
      const std::size_t offset = (t * in.heads + h) * kv.head_dim;
      const std::size_t kv_head = h / in.group();
      const std::size_t keys = in.start + t + 1;
      std::vector<double> weights(keys);
      for (std::size_t p = 0; p < keys; ++p) {
        for (std::size_t d = 0; d < kv.head_dim; ++d) weights[p] += double{in.q[offset + d]} * k_at(kv_head, p, d);
        weights[p] /= std::sqrt(static_cast<double>(kv.head_dim));
      }
      const double top = *std::max_element(weights.begin(), weights.end());
      double sum = 0;
      for (double& w : weights) sum += w = std::exp(w - top);
      for (std::size_t d = 0; d < kv.head_dim; ++d) {
        double value = 0;
        for (std::size_t p = 0; p < keys; ++p) value += weights[p] * v_at(kv_head, p, d);
        in.out[offset + d] = static_cast<float>(value / sum);
      }
    }
  }
}

}  // namespace kvist::kernels::reference
