#include <gmock/gmock.h>

#include <array>
#include <cmath>
#include <vector>

#include "kernels/cpu/reference.h"
#include "kernels/ops.h"
#include "tests/kernels/each_target.h"
#include "tests/kernels/random_tensor.h"

namespace kvist::kernels {
namespace {

using ::testing::Each;

std::vector<float> Values(TensorType type, const std::vector<std::byte>& bytes, std::size_t n) {
  std::vector<float> out(n);
  Dequantize(type, bytes.data(), n, out.data());
  return out;
}

// A block of `size` zero bytes but for what `set` puts there.
class Block {
 public:
  explicit Block(std::size_t size) : bytes_(size) {}
  Block& Half(std::size_t at, float value) {
    const std::uint16_t half = F32ToF16(value);
    std::memcpy(bytes_.data() + at, &half, sizeof(half));
    return *this;
  }
  Block& Byte(std::size_t at, unsigned value) {
    bytes_[at] = static_cast<std::byte>(value);
    return *this;
  }
  Block& Fill(std::size_t from, std::size_t to, unsigned value) {
    for (std::size_t i = from; i < to; ++i) Byte(i, value);
    return *this;
  }
  const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

TEST(Dequantize, MatchesTheReferenceBitForBitOnEveryTypeAndTarget) {
  for (const TensorType type : kAllTypes) {
    SCOPED_TRACE(InfoOf(type).name);
    const std::size_t n = 1024;
    const std::vector<std::byte> bytes = RandomBlocks(type, n / InfoOf(type).block_elements, 7);
    std::vector<float> expected(n);
    reference::Dequantize(type, bytes.data(), n, expected.data());
    OnEachTarget([&](std::int64_t) { EXPECT_EQ(Values(type, bytes, n), expected); });
  }
}

TEST(Dequantize, EveryHalfIsExactOnEveryTarget) {
  std::vector<std::byte> bytes(0x20000);
  for (std::uint32_t half = 0; half < 0x10000; ++half) {
    bytes[2 * half] = static_cast<std::byte>(half);
    bytes[2 * half + 1] = static_cast<std::byte>(half >> 8);
  }
  OnEachTarget([&](std::int64_t) {
    const std::vector<float> values = Values(TensorType::kF16, bytes, 0x10000);
    for (std::uint32_t half = 0; half < 0x10000; ++half) {
      const float expected = F16ToF32(static_cast<std::uint16_t>(half));
      if (std::isnan(expected)) {
        ASSERT_TRUE(std::isnan(values[half])) << half;
      } else {
        ASSERT_EQ(std::bit_cast<std::uint32_t>(values[half]), std::bit_cast<std::uint32_t>(expected)) << half;
      }
    }
  });
}

TEST(Dequantize, FloatsOfAnyCountAreWhole) {
  const std::vector<std::byte> bytes = RandomBlocks(TensorType::kBF16, 21, 3);
  std::vector<float> expected(21);
  reference::Dequantize(TensorType::kBF16, bytes.data(), 21, expected.data());
  OnEachTarget([&](std::int64_t) { EXPECT_EQ(Values(TensorType::kBF16, bytes, 21), expected); });
}

TEST(Dequantize, Q8_0IsQuantTimesScale) {
  Block block(34);
  block.Half(0, 0.5f).Byte(2, 10).Byte(3, 0x80).Byte(33, 0xff);
  const std::vector<float> values = Values(TensorType::kQ8_0, block.bytes(), 32);
  EXPECT_EQ(values[0], 5.0f);
  EXPECT_EQ(values[1], -64.0f);
  EXPECT_EQ(values[31], -0.5f);
}

TEST(Dequantize, Q4_0HoldsLowNibblesFirstAndCentresOnEight) {
  Block block(18);
  block.Half(0, 2.0f).Fill(2, 18, 0x88).Byte(2, 0xf0);
  const std::vector<float> values = Values(TensorType::kQ4_0, block.bytes(), 32);
  EXPECT_EQ(values[0], -16.0f);  // low nibble 0
  EXPECT_EQ(values[16], 14.0f);  // high nibble 15
  EXPECT_EQ(values[1], 0.0f);
}

TEST(Dequantize, Q4_1AddsItsMinimum) {
  Block block(20);
  block.Half(0, 0.25f).Half(2, -1.0f).Byte(19, 0x4f);
  const std::vector<float> values = Values(TensorType::kQ4_1, block.bytes(), 32);
  EXPECT_EQ(values[0], -1.0f);
  EXPECT_EQ(values[15], 15 * 0.25f - 1.0f);
  EXPECT_EQ(values[31], 0.0f);
}

TEST(Dequantize, Q4KUnpacksItsSixBitScales) {
  // Sub-block 1: scale 5, minimum 3, in the low six bits of bytes 1 and 5. Sub-block 6: scale 0b100011 = 35 (low
  // nibble 3 in byte 10, top bits 2 on byte 2), minimum 0b010001 = 17 (high nibble 1 in byte 10, top bits 1 on byte 6).
  Block block(144);
  block.Half(0, 0.5f).Half(2, 2.0f);
  block.Byte(4 + 1, 5).Byte(4 + 5, 3);
  block.Byte(4 + 10, 0x13).Byte(4 + 2, 0x80).Byte(4 + 6, 0x40);
  block.Byte(16, 0x90);            // sub-block 1, element 0: high nibble 9
  block.Byte(16 + 96 + 31, 0x0c);  // sub-block 6, element 31: low nibble 12
  const std::vector<float> values = Values(TensorType::kQ4_K, block.bytes(), 256);
  EXPECT_EQ(values[32], 0.5f * 5 * 9 - 2.0f * 3);
  EXPECT_EQ(values[33], -6.0f);
  EXPECT_EQ(values[6 * 32 + 31], 0.5f * 35 * 12 - 2.0f * 17);
  EXPECT_EQ(values[6 * 32], -34.0f);
  EXPECT_EQ(values[0], 0.0f);
}

TEST(Dequantize, Q6KJoinsLowAndHighBits) {
  Block block(210);
  block.Half(208, 0.5f).Fill(192, 208, 1);
  block.Byte(192 + 8 + 7, 0xfe);  // scale -2 of elements 240..255
  // Element 255: second half, last quarter, index 31: high nibble of ql[64 + 32 + 31], bits 6..7 of qh[32 + 31].
  block.Byte(64 + 63, 0xa0).Byte(128 + 63, 0xc0);
  const std::vector<float> values = Values(TensorType::kQ6_K, block.bytes(), 256);
  EXPECT_EQ(values[255], 0.5f * -2 * (0x3a - 32));
  EXPECT_EQ(values[254], 0.5f * -2 * -32);
  EXPECT_EQ(values[0], -16.0f);
}

TEST(Dequantize, ZeroScaleIsAllZero) {
  for (const TensorType type : {TensorType::kQ8_0, TensorType::kQ4_0, TensorType::kQ6_K}) {
    Block block(InfoOf(type).block_bytes);
    block.Fill(0, InfoOf(type).block_bytes, 0x77).Half(type == TensorType::kQ6_K ? 208 : 0, 0.0f);
    EXPECT_THAT(Values(type, block.bytes(), InfoOf(type).block_elements), Each(0.0f));
  }
}

}  // namespace
}  // namespace kvist::kernels
