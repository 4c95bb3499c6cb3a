#include "cachestore/tier/dram_arena.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <vector>

#include "gtest/gtest.h"

namespace kvist {
namespace {

constexpr std::size_t kKiB = 1024;
constexpr std::size_t kMiB = 1024 * kKiB;

std::vector<std::span<std::byte>> TakeAll(DramArena& arena, std::size_t bytes) {
  std::vector<std::span<std::byte>> slots;
  for (auto slot = arena.Allocate(bytes); !slot.empty(); slot = arena.Allocate(bytes)) slots.push_back(slot);
  return slots;
}

TEST(DramArena, SlotsAreAlignedDisjointAndInside) {
  auto arena = DramArena::Create(8 * kMiB);
  ASSERT_TRUE(arena.ok()) << arena.status();
  std::vector<std::span<std::byte>> slots;
  for (const std::size_t size : {68 * kKiB, 4 * kKiB, 500 * kKiB, 68 * kKiB, 1420 * kKiB}) {
    const auto slot = (*arena)->Allocate(size);
    ASSERT_EQ(slot.size(), size);
    slots.push_back(slot);
  }
  std::ranges::sort(slots, {}, [](const auto& slot) { return slot.data(); });
  const auto memory = (*arena)->memory();
  for (std::size_t i = 0; i < slots.size(); ++i) {
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(slots[i].data()) % 4096, 0u);
    EXPECT_GE(slots[i].data(), memory.data());
    EXPECT_LE(slots[i].data() + slots[i].size(), memory.data() + memory.size());
    if (i > 0) {
      EXPECT_LE(slots[i - 1].data() + slots[i - 1].size(), slots[i].data());
    }
  }
}

TEST(DramArena, WastesLittleOfOneSize) {
  auto arena = DramArena::Create(256 * kMiB);
  ASSERT_TRUE(arena.ok());
  for (const std::size_t size : {68 * kKiB, 1420 * kKiB, 8 * kMiB + 4 * kKiB}) {
    const auto slots = TakeAll(**arena, size);
    EXPECT_GE(slots.size() * size, 256 * kMiB * 88 / 100) << size;
    for (const auto slot : slots) (*arena)->Free(slot);
    EXPECT_EQ((*arena)->allocated_bytes(), 0u);
  }
}

TEST(DramArena, MemoryOfOneSizeServesAnotherOnceFree) {
  auto arena = DramArena::Create(16 * kMiB);
  ASSERT_TRUE(arena.ok());
  auto small = TakeAll(**arena, 68 * kKiB);
  EXPECT_TRUE((*arena)->Allocate(1420 * kKiB).empty());
  // Everything but one slot: only that one's span stays with its size.
  for (std::size_t i = 1; i < small.size(); ++i) (*arena)->Free(small[i]);
  const auto large = TakeAll(**arena, 1420 * kKiB);
  EXPECT_GE(large.size(), 9u);
}

TEST(DramArena, StaysConsistentUnderRandomUse) {
  auto arena = DramArena::Create(16 * kMiB);
  ASSERT_TRUE(arena.ok());
  std::vector<std::pair<std::span<std::byte>, std::byte>> held;
  std::uint64_t random = 1;
  std::uint64_t bytes = 0;
  for (int step = 0; step < 3000; ++step) {
    random = random * 6364136223846793005 + 1442695040888963407;
    if ((random >> 40) % 5 < 3) {
      const auto slot = (*arena)->Allocate(((random >> 50) % 4 + 1) * 68 * kKiB);
      if (slot.empty()) continue;
      const auto mark = static_cast<std::byte>(step);
      slot.front() = slot.back() = mark;
      held.emplace_back(slot, mark);
      bytes += slot.size();
    } else if (!held.empty()) {
      std::swap(held[(random >> 33) % held.size()], held.back());
      const auto [slot, mark] = held.back();
      held.pop_back();
      ASSERT_EQ(slot.front(), mark);
      ASSERT_EQ(slot.back(), mark);
      (*arena)->Free(slot);
      bytes -= slot.size();
    }
    ASSERT_EQ((*arena)->allocated_bytes(), bytes);
  }
  for (const auto& [slot, mark] : held) (*arena)->Free(slot);
  EXPECT_EQ(TakeAll(**arena, 16 * kMiB).size(), 1u) << "all slabs came back";
}

TEST(DramArena, WhoGetsTheDescriptorCanOnlyRead) {
  auto arena = DramArena::Create(2 * kMiB);
  ASSERT_TRUE(arena.ok());
  const int fd = (*arena)->fd();
  const std::size_t size = (*arena)->memory().size();
  const auto slot = (*arena)->Allocate(4096);
  std::memset(slot.data(), 0x5a, slot.size());
  EXPECT_EQ(mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
  EXPECT_NE(ftruncate(fd, 0), 0);
  EXPECT_NE(ftruncate(fd, static_cast<off_t>(2 * size)), 0);
  EXPECT_LT(pwrite(fd, "x", 1, 0), 0);
  void* view = mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0);
  ASSERT_NE(view, MAP_FAILED);
  const auto at = static_cast<std::size_t>(slot.data() - (*arena)->memory().data());
  EXPECT_EQ(std::memcmp(static_cast<std::byte*>(view) + at, slot.data(), slot.size()), 0);
  EXPECT_NE(mprotect(view, size, PROT_READ | PROT_WRITE), 0);
  munmap(view, size);
}

TEST(DramArena, RefusesSizesItCannotHave) {
  EXPECT_TRUE(absl::IsInvalidArgument(DramArena::Create(0).status()));
  EXPECT_TRUE(absl::IsResourceExhausted(DramArena::Create(std::uint64_t{1} << 60).status()));
}

}  // namespace
}  // namespace kvist
