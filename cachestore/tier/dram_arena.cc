#include "cachestore/tier/dram_arena.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>

#include "absl/memory/memory.h"
#include "cachestore/tier/block_record.h"
#include "fmt/format.h"
#include "spdlog/spdlog.h"

namespace kvist {
namespace {

constexpr std::size_t kSlabBytesMax = std::size_t{2} << 20;  // one huge page on x86-64 and arm64
constexpr std::size_t kSlabBytesMin = std::size_t{64} << 10;
constexpr std::size_t kSlabsWanted = 64;  // so that a small arena can be shared too
constexpr std::size_t kWasteShare = 16;   // a span wastes at most 1/16 of its bytes
// Where no span below this size is that thrifty, take the best: contiguous runs get rare as they get longer.
constexpr std::size_t kSpanSlabsMax = 32;

std::size_t SlabBytesFor(std::uint64_t bytes) {
  std::size_t slab = kSlabBytesMax;
  while (slab > kSlabBytesMin && bytes / slab < kSlabsWanted) slab /= 2;
  return slab;
}

struct Mapping {
  int fd = -1;
  void* memory = MAP_FAILED;
};

void Discard(Mapping& mapping, std::size_t bytes) {
  if (mapping.memory != MAP_FAILED) munmap(mapping.memory, bytes);
  if (mapping.fd >= 0) close(mapping.fd);
  mapping = {};
}

// A mapped and sealed memfd; fd -1 with errno set if it can't be had.
Mapping MapSealed(std::size_t bytes, unsigned flags) {
  Mapping mapping;
  mapping.fd = memfd_create("kvist-arena", MFD_CLOEXEC | MFD_ALLOW_SEALING | flags);
  if (mapping.fd < 0) return mapping;
  bool good = ftruncate(mapping.fd, static_cast<off_t>(bytes)) == 0;
  if (good) {
    mapping.memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, mapping.fd, 0);
    good = mapping.memory != MAP_FAILED;
  }
  // Our own writable mapping stands; after FUTURE_WRITE there can't be another, so whoever gets the fd only reads.
  good = good && fcntl(mapping.fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) == 0;
  if (!good) {
    const int error = errno;
    Discard(mapping, bytes);
    errno = error;
  }
  return mapping;
}

}  // namespace

absl::StatusOr<std::unique_ptr<DramArena>> DramArena::Create(std::uint64_t bytes) {
  if (bytes < kBytesMin) {
    return absl::InvalidArgumentError(fmt::format("DRAM tier of {} bytes; at least {}", bytes, kBytesMin));
  }
  const auto physical =
      static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  if (bytes > physical) {
    return absl::ResourceExhaustedError(
        fmt::format("DRAM tier of {} bytes on a machine with {} bytes of memory; lower it", bytes, physical));
  }
  const std::size_t slab = SlabBytesFor(bytes);
  const std::size_t size = bytes / slab * slab;

  Mapping mapping;
  if (slab == kSlabBytesMax) mapping = MapSealed(size, MFD_HUGETLB);  // only where the administrator set pages aside
  if (mapping.fd < 0) {
    mapping = MapSealed(size, 0);
    if (mapping.fd < 0) {
      return absl::ResourceExhaustedError(
          fmt::format("no DRAM arena of {} bytes: {}; lower the DRAM tier's size", size, std::strerror(errno)));
    }
    if (madvise(mapping.memory, size, MADV_HUGEPAGE) != 0) {
      spdlog::debug("DRAM arena without huge pages: {}", std::strerror(errno));
    }
  }
  // A core dump with the arena in it would be huge, and full of users' prompts.
  madvise(mapping.memory, size, MADV_DONTDUMP);
  // WrapUnique: the constructor is private.
  return absl::WrapUnique(new DramArena(mapping.fd, {static_cast<std::byte*>(mapping.memory), size}, slab));
}

DramArena::DramArena(int fd, std::span<std::byte> memory, std::size_t slab_bytes)
    : fd_(fd),
      memory_(memory),
      slab_bytes_(slab_bytes),
      slab_count_(memory.size() / slab_bytes),
      slab_used_(slab_count_, false) {}

DramArena::~DramArena() {
  munmap(memory_.data(), memory_.size());
  close(fd_);
}

std::size_t DramArena::SpanSlabs(std::size_t record_bytes, std::size_t most) const {
  const std::size_t least = (record_bytes + slab_bytes_ - 1) / slab_bytes_;
  if (least > most) return 0;
  const auto used_share = [&](std::size_t slabs) {
    const std::size_t bytes = slabs * slab_bytes_;
    return static_cast<double>(bytes / record_bytes * record_bytes) / static_cast<double>(bytes);
  };
  std::size_t best = least;
  for (std::size_t slabs = least; slabs <= std::min(most, std::max(least, kSpanSlabsMax)); ++slabs) {
    if (used_share(slabs) > used_share(best)) best = slabs;
    if (used_share(best) >= 1.0 - 1.0 / kWasteShare) break;
  }
  return best;
}

std::size_t DramArena::FindRun(std::size_t slabs) const {
  std::size_t run = 0;
  for (std::size_t slab = 0; slab < slab_count_; ++slab) {
    run = slab_used_[slab] ? 0 : run + 1;
    if (run == slabs) return slab + 1 - slabs;
  }
  return slab_count_;
}

std::size_t DramArena::LongestRun() const {
  std::size_t longest = 0;
  std::size_t run = 0;
  for (const bool used : slab_used_) {
    run = used ? 0 : run + 1;
    longest = std::max(longest, run);
  }
  return longest;
}

bool DramArena::MakeSpan(std::size_t record_bytes) {
  const std::size_t slabs = SpanSlabs(record_bytes, LongestRun());
  if (slabs == 0) return false;
  const std::size_t first = FindRun(slabs);
  for (std::size_t slab = first; slab < first + slabs; ++slab) slab_used_[slab] = true;
  Span span{.record_bytes = record_bytes, .slabs = slabs, .slots = slabs * slab_bytes_ / record_bytes, .free = {}};
  for (std::size_t slot = span.slots; slot > 0; --slot) span.free.push_back(static_cast<std::uint32_t>(slot - 1));
  spans_.emplace(first, std::move(span));
  open_[record_bytes].insert(first);
  return true;
}

std::span<std::byte> DramArena::Allocate(std::size_t record_bytes) {
  assert(record_bytes > 0 && record_bytes % kRecordAlignment == 0);
  absl::MutexLock lock(&mutex_);
  if (!open_.contains(record_bytes) && !MakeSpan(record_bytes)) return {};
  const auto open = open_.find(record_bytes);
  const std::size_t first = *open->second.begin();
  Span& span = spans_.find(first)->second;
  const std::size_t slot = span.free.back();
  span.free.pop_back();
  if (span.free.empty()) {
    open->second.erase(first);
    if (open->second.empty()) open_.erase(open);
  }
  allocated_bytes_ += record_bytes;
  return memory_.subspan(first * slab_bytes_ + slot * record_bytes, record_bytes);
}

void DramArena::Free(std::span<std::byte> slot) {
  absl::MutexLock lock(&mutex_);
  const auto offset = static_cast<std::size_t>(slot.data() - memory_.data());
  auto it = spans_.upper_bound(offset / slab_bytes_);
  assert(it != spans_.begin());
  --it;
  const std::size_t first = it->first;
  Span& span = it->second;
  assert(span.record_bytes == slot.size() && span.free.size() < span.slots);
  span.free.push_back(static_cast<std::uint32_t>((offset - first * slab_bytes_) / span.record_bytes));
  allocated_bytes_ -= span.record_bytes;
  if (span.free.size() < span.slots) {
    open_[span.record_bytes].insert(first);
    return;
  }
  for (std::size_t slab = first; slab < first + span.slabs; ++slab) slab_used_[slab] = false;
  if (const auto open = open_.find(span.record_bytes); open != open_.end()) {
    open->second.erase(first);
    if (open->second.empty()) open_.erase(open);
  }
  spans_.erase(it);
}

std::vector<DramArena::Region> DramArena::Regions(std::size_t record_bytes) const {
  const std::size_t least = (record_bytes + slab_bytes_ - 1) / slab_bytes_;
  absl::MutexLock lock(&mutex_);
  // Spans and single free slabs, in order of address; a region is as many neighbours as make up `least` slabs.
  struct Piece {
    std::size_t first = 0;
    std::size_t slabs = 1;
    std::size_t used_slots = 0;
    std::uint64_t used_bytes = 0;
  };
  std::vector<Piece> pieces;
  for (std::size_t slab = 0; slab < slab_count_; slab += pieces.back().slabs) {
    Piece piece{.first = slab};
    if (const auto it = spans_.find(slab); it != spans_.end()) {
      const Span& span = it->second;
      piece.slabs = span.slabs;
      piece.used_slots = span.slots - span.free.size();
      piece.used_bytes = piece.used_slots * span.record_bytes;
    }
    pieces.push_back(piece);
  }
  std::vector<Region> regions;
  for (std::size_t begin = 0; begin < pieces.size(); ++begin) {
    Region region;
    std::size_t slabs = 0;
    for (std::size_t i = begin; i < pieces.size() && slabs < least; ++i) {
      slabs += pieces[i].slabs;
      region.used_slots += pieces[i].used_slots;
      region.used_bytes += pieces[i].used_bytes;
    }
    if (slabs < least) break;
    region.memory = memory_.subspan(pieces[begin].first * slab_bytes_, slabs * slab_bytes_);
    regions.push_back(region);
  }
  const std::size_t count = std::min(regions.size(), kRegionsMax);
  std::ranges::partial_sort(regions, regions.begin() + static_cast<std::ptrdiff_t>(count), {}, &Region::used_bytes);
  regions.resize(count);
  return regions;
}

std::uint64_t DramArena::allocated_bytes() const {
  absl::MutexLock lock(&mutex_);
  return allocated_bytes_;
}

}  // namespace kvist
