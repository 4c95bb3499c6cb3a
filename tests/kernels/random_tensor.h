// Random matrices of every tensor type, and random vectors, for the kernel tests. Fixed seeds.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/float16.h"
#include "kernels/ops.h"

namespace kvist::kernels {

inline constexpr TensorType kAllTypes[] = {TensorType::kF32,  TensorType::kF16,  TensorType::kBF16, TensorType::kQ8_0,
                                           TensorType::kQ4_0, TensorType::kQ4_1, TensorType::kQ4_K, TensorType::kQ6_K};

inline std::vector<float> RandomFloats(std::size_t n, std::uint32_t seed, float spread = 1.0f) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(-spread, spread);
  std::vector<float> out(n);
  for (float& value : out) value = uniform(random);
  return out;
}

// `count` blocks of random bits; the F16 scales in them are of ordinary size.
inline std::vector<std::byte> RandomBlocks(TensorType type, std::size_t count, std::uint32_t seed) {
  std::mt19937 random(seed);
  const TensorTypeInfo& info = InfoOf(type);
  std::vector<std::byte> out(count * info.block_bytes);
  for (std::byte& byte : out) byte = static_cast<std::byte>(random());
  const auto put = [&](std::byte* to, float low, float high) {
    const std::uint16_t half = F32ToF16(std::uniform_real_distribution<float>(low, high)(random));
    std::memcpy(to, &half, sizeof(half));
  };
  for (std::size_t i = 0; i < count; ++i) {
    std::byte* block = out.data() + i * info.block_bytes;
    const float value = std::uniform_real_distribution<float>(-1, 1)(random);
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
    switch (type) {
      case TensorType::kF32:
        std::memcpy(block, &value, sizeof(value));
        break;
      case TensorType::kF16:
        put(block, -1, 1);
        break;
      case TensorType::kBF16:
        std::memcpy(block, reinterpret_cast<const char*>(&bits) + 2, 2);
        break;
      case TensorType::kQ8_0:
        put(block, -0.01f, 0.01f);
        break;
      case TensorType::kQ4_0:
        put(block, -0.1f, 0.1f);
        break;
      case TensorType::kQ4_1:
      case TensorType::kQ4_K:
        put(block, 0.001f, 0.002f);
        put(block + 2, -0.02f, 0.02f);
        break;
      case TensorType::kQ6_K:
        put(block + 208, -0.0005f, 0.0005f);
        break;
    }
  }
  return out;
}

// A matrix and the bytes it points to.
struct RandomMatrix {
  RandomMatrix(TensorType type, std::size_t rows, std::size_t cols, std::uint32_t seed)
      : bytes(RandomBlocks(type, rows * cols / InfoOf(type).block_elements, seed)),
        matrix{.type = type, .data = bytes.data(), .rows = rows, .cols = cols} {}
  std::vector<std::byte> bytes;
  Matrix matrix;
};

inline bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

inline float LargestDifference(const std::vector<float>& a, const std::vector<float>& b) {
  float largest = a.size() == b.size() ? 0.0f : INFINITY;
  for (std::size_t i = 0; i < a.size() && i < b.size(); ++i) {
    const float difference = std::fabs(a[i] - b[i]);
    if (!(difference <= largest)) largest = difference;  // a NaN sticks
  }
  return largest;
}

}  // namespace kvist::kernels
