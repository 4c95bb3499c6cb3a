#include "src/client/staging_area.h"

#include <map>
#include <random>

#include "gmock/gmock.h"

namespace kvist::client {
namespace {

constexpr NamespaceId kNs{.hi = 1, .lo = 1};

std::shared_ptr<StagingArea> MakeArea(std::uint64_t bytes) {
  auto memory = protocol::MakeSealedMemory("test", bytes);
  auto mapping = protocol::Mapping::Create(memory->get(), bytes, protocol::Mapping::Access::kReadWrite);
  return std::make_shared<StagingArea>(std::move(*mapping));
}

TEST(StagingArea, GivesAlignedSlotsUntilFullAndTakesThemBack) {
  const auto area = MakeArea(64 << 10);
  std::vector<WriteGrant> grants;
  for (int i = 0; i < 8; ++i) {
    auto grant = area->Allocate(kNs, 5000);
    ASSERT_TRUE(grant.ok());
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(grant->payload().data()) % StagingArea::kSlotAlignment, 0u);
    grants.push_back(std::move(*grant));
  }
  EXPECT_TRUE(absl::IsResourceExhausted(area->Allocate(kNs, 1).status()));
  grants.erase(grants.begin() + 3);
  EXPECT_TRUE(area->Allocate(kNs, 8192).ok());
  grants.clear();
  EXPECT_TRUE(area->Allocate(kNs, 64 << 10).ok()) << "freed ranges join";
  EXPECT_FALSE(area->Allocate(kNs, (64 << 10) + 1).ok());
  EXPECT_FALSE(area->Allocate(kNs, 0).ok());
  EXPECT_FALSE(area->Allocate(kNs, ~std::uint64_t{0}).ok());
}

TEST(StagingArea, NeverOverlapsSlots) {
  const auto area = MakeArea(1 << 20);
  std::mt19937 random(17);
  std::map<const std::byte*, WriteGrant> held;
  for (int i = 0; i < 3000; ++i) {
    if (!held.empty() && random() % 2 == 0) {
      held.erase(std::next(held.begin(), static_cast<long>(random() % held.size())));
      continue;
    }
    auto grant = area->Allocate(kNs, 1 + random() % 70'000);
    if (!grant.ok()) continue;
    const std::byte* start = grant->payload().data();
    const auto [it, inserted] = held.emplace(start, std::move(*grant));
    ASSERT_TRUE(inserted);
    if (it != held.begin()) {
      const auto& before = std::prev(it)->second.payload();
      ASSERT_LE(before.data() + before.size(), start);
    }
    if (std::next(it) != held.end()) {
      ASSERT_LE(start + it->second.payload().size(), std::next(it)->first);
    }
  }
  held.clear();
  EXPECT_TRUE(area->Allocate(kNs, 1 << 20).ok());
}

TEST(StagingArea, KnowsItsOwnGrantsOnly) {
  const auto area = MakeArea(64 << 10);
  const auto other = MakeArea(64 << 10);
  const auto first = area->Allocate(kNs, 4096);
  const auto second = area->Allocate(kNs, 100);
  EXPECT_EQ(area->OffsetOf(*first, kNs), 0u);
  EXPECT_EQ(area->OffsetOf(*second, kNs), 4096u);
  EXPECT_EQ(area->OffsetOf(*second, NamespaceId{.hi = 2, .lo = 2}), std::nullopt);
  EXPECT_EQ(other->OffsetOf(*second, kNs), std::nullopt);
  EXPECT_EQ(area->OffsetOf(WriteGrant(), kNs), std::nullopt);
}

TEST(StagingArea, StaysAliveWithItsGrants) {
  auto area = MakeArea(64 << 10);
  auto grant = area->Allocate(kNs, 4096);
  area.reset();
  std::fill(grant->payload().begin(), grant->payload().end(), std::byte{1});
}

}  // namespace
}  // namespace kvist::client
