#include "kernels/float16.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace kvist::kernels {
namespace {

TEST(Float16, KnownValuesConvert) {
  EXPECT_EQ(F16ToF32(0x0000), 0.0f);
  EXPECT_TRUE(std::signbit(F16ToF32(0x8000)));
  EXPECT_EQ(F16ToF32(0x3c00), 1.0f);
  EXPECT_EQ(F16ToF32(0xc000), -2.0f);
  EXPECT_EQ(F16ToF32(0x7bff), 65504.0f);
  EXPECT_EQ(F16ToF32(0x0001), 0x1p-24f);
  EXPECT_EQ(F16ToF32(0x0400), 0x1p-14f);
  EXPECT_EQ(F16ToF32(0x7c00), std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(F16ToF32(0x7e00)));
  EXPECT_EQ(BF16ToF32(0x3fc0), 1.5f);
}

TEST(Float16, EveryHalfSurvivesTheRoundTrip) {
  for (std::uint32_t half = 0; half < 0x10000; ++half) {
    const float value = F16ToF32(static_cast<std::uint16_t>(half));
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(F16ToF32(F32ToF16(value))));
    } else {
      EXPECT_EQ(F32ToF16(value), half);
    }
  }
}

TEST(Float16, ValuesBetweenHalvesRoundToNearestEven) {
  for (std::uint32_t half = 0; half < 0x7bff; ++half) {
    const float low = F16ToF32(static_cast<std::uint16_t>(half));
    const float high = F16ToF32(static_cast<std::uint16_t>(half + 1));
    const float middle = low + (high - low) / 2;  // exact: floats have 13 more bits
    EXPECT_EQ(F32ToF16(middle), half % 2 == 0 ? half : half + 1) << half;
    EXPECT_EQ(F32ToF16(std::nextafterf(middle, 0)), half) << half;
    EXPECT_EQ(F32ToF16(std::nextafterf(middle, 1e9f)), half + 1) << half;
    EXPECT_EQ(F32ToF16(-middle), F32ToF16(middle) | 0x8000) << half;
  }
}

TEST(Float16, BeyondTheRangeIsInfinity) {
  EXPECT_EQ(F32ToF16(65519.996f), 0x7bff);
  EXPECT_EQ(F32ToF16(65520.0f), 0x7c00);
  EXPECT_EQ(F32ToF16(-1e30f), 0xfc00);
  EXPECT_EQ(F32ToF16(std::numeric_limits<float>::infinity()), 0x7c00);
  EXPECT_EQ(F32ToF16(0x1p-26f), 0x0000);
}

}  // namespace
}  // namespace kvist::kernels
