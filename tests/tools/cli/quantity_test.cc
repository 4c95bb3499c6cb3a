#include "tools/cli/quantity.h"

#include <cstdint>
#include <limits>

#include "gtest/gtest.h"

namespace kvist::cli {
namespace {

TEST(HumanBytes, UsesTheUnitThatKeepsTheNumberShort) {
  EXPECT_EQ(HumanBytes(0), "0 B");
  EXPECT_EQ(HumanBytes(1023), "1023 B");
  EXPECT_EQ(HumanBytes(1024), "1.0 KiB");
  EXPECT_EQ(HumanBytes(1536), "1.5 KiB");
  EXPECT_EQ(HumanBytes(10 * 1024), "10 KiB");
  EXPECT_EQ(HumanBytes(std::uint64_t{16} << 30), "16 GiB");
}

TEST(HumanBytes, DoesNotShowAFullUnitAsThousandAndTwentyFourOfTheSmaller) {
  EXPECT_EQ(HumanBytes((std::uint64_t{1} << 20) - 1), "1.0 MiB");
}

TEST(HumanBytes, HoldsTheLargestAmount) {
  EXPECT_EQ(HumanBytes(std::numeric_limits<std::uint64_t>::max()), "16777216 TiB");
}

}  // namespace
}  // namespace kvist::cli
