#include "kernels/cuda/cuda_device_tier.h"

#include <cstddef>
#include <memory>
#include <vector>

#include "gtest/gtest.h"

namespace kvist::kernels {
namespace {

constexpr std::size_t kPageBytes = std::size_t{1} << 20;

std::vector<std::byte> Payload(std::size_t bytes, unsigned seed) {
  std::vector<std::byte> payload(bytes);
  for (std::size_t i = 0; i < bytes; ++i) payload[i] = static_cast<std::byte>((i * 31 + seed) % 251);
  return payload;
}

// The tier through its seam, as the engine sees it.
std::unique_ptr<DeviceTier> OpenTier(std::uint32_t pages) {
  auto tier = CudaDeviceTier::Create({.page_bytes = kPageBytes, .pages = pages});
  if (!tier.ok()) return nullptr;
  return *std::move(tier);
}

TEST(CudaDeviceTier, RefusesAPoolWithoutPages) {
  EXPECT_EQ(CudaDeviceTier::Create({.page_bytes = kPageBytes, .pages = 0}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(CudaDeviceTier::Create({.page_bytes = 0, .pages = 4}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(CudaDeviceTier, SaysWhichRemedyWithoutADevice) {
  const auto tier = CudaDeviceTier::Create({.page_bytes = kPageBytes, .pages = 1});
  if (tier.ok()) GTEST_SKIP() << "this machine has a device";
  EXPECT_EQ(tier.status().code(), absl::StatusCode::kUnavailable) << tier.status();
}

TEST(CudaDeviceTier, GivesBackWhatWasLoaded) {
  auto tier = OpenTier(2);
  if (tier == nullptr) GTEST_SKIP() << "no CUDA device";
  const auto first = Payload(kPageBytes, 1);
  const auto second = Payload(kPageBytes, 2);
  const auto page1 = tier->Load(first);
  const auto page2 = tier->Load(second);
  ASSERT_TRUE(page1.ok() && page2.ok());
  EXPECT_EQ(page1->writable, nullptr);
  EXPECT_EQ(tier->Allocate().status().code(), absl::StatusCode::kResourceExhausted);
  std::vector<std::byte> out1(kPageBytes);
  std::vector<std::byte> out2(kPageBytes);
  ASSERT_TRUE(tier->Store(*page1, out1).ok());
  ASSERT_TRUE(tier->Store(*page2, out2).ok());
  ASSERT_TRUE(tier->Wait().ok());
  EXPECT_EQ(out1, first);
  EXPECT_EQ(out2, second);
  tier->Free(*page1);
  tier->Free(*page2);
  EXPECT_EQ(tier->free_pages(), 2u);
}

TEST(CudaDeviceTier, RefusesAPayloadOfAnotherSize) {
  auto tier = OpenTier(1);
  if (tier == nullptr) GTEST_SKIP() << "no CUDA device";
  EXPECT_EQ(tier->Load(Payload(kPageBytes - 1, 1)).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(tier->free_pages(), 1u);
}

}  // namespace
}  // namespace kvist::kernels
