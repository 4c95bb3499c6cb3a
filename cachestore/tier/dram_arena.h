// DramArena: the DRAM tier's memory, one memfd of fixed size that clients may map read-only.
//
// Namespaces differ in record size, and share the arena by slabs: it is cut into equal slabs; a span of neighbouring
// slabs serves one record size at a time, and its slabs return to the pool when its last slot is freed.
//   - Slabs are 2 MiB (one huge page), smaller in small arenas so that there are at least 64 to share: 64 KiB at least.
//   - A span has as few slabs as waste at most 1/16 of it (so 1.4 MiB records come 7 to 10 MiB instead of 1 to 2 MiB),
//     or wastes least where no such run of slabs is free.
//   - Slots are taken from the lowest span with room, so that higher ones drain.
//   - Where slabs of another size are in the way, Regions says what would have to be emptied, cheapest first.
// Thread safety: any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"

namespace kvist {

class DramArena {
 public:
  static constexpr std::uint64_t kBytesMin = std::uint64_t{1} << 20;  // below, not even small records share it

  // Exactly RoundDown(bytes, slab) bytes of address space; memory is taken as slots are first written.
  // InvalidArgument below kBytesMin; ResourceExhausted if the machine has no such memory.
  static absl::StatusOr<std::unique_ptr<DramArena>> Create(std::uint64_t bytes);
  ~DramArena();
  DramArena(const DramArena&) = delete;
  DramArena& operator=(const DramArena&) = delete;

  // A slot of `record_bytes` (a multiple of 4 KiB), 4 KiB-aligned; empty if there is none.
  std::span<std::byte> Allocate(std::size_t record_bytes);
  void Free(std::span<std::byte> slot);

  // A run of slabs that would hold a record, were its `used_slots` free.
  struct Region {
    std::span<std::byte> memory;
    std::size_t used_slots = 0;
    std::uint64_t used_bytes = 0;
  };
  // The cheapest such runs, by bytes in use; kRegionsMax at most.
  static constexpr std::size_t kRegionsMax = 8;
  std::vector<Region> Regions(std::size_t record_bytes) const;

  // Whether an empty arena could hold one record of this size.
  bool Fits(std::size_t record_bytes) const { return record_bytes <= slab_bytes_ * slab_count_; }

  // Sealed: cannot be resized, nor mapped or written with write access by anyone who is given it.
  int fd() const { return fd_; }
  std::span<std::byte> memory() const { return memory_; }
  std::size_t slab_bytes() const { return slab_bytes_; }
  std::uint64_t allocated_bytes() const;

 private:
  struct Span {
    std::size_t record_bytes = 0;
    std::size_t slabs = 0;
    std::size_t slots = 0;
    std::vector<std::uint32_t> free;  // slot numbers
  };
  DramArena(int fd, std::span<std::byte> memory, std::size_t slab_bytes);
  // Slabs of a span for this size, `most` at most; 0 if that many can't hold a record.
  std::size_t SpanSlabs(std::size_t record_bytes, std::size_t most) const;
  // First slab of the first free run of that many; slab_count_ if there is none.
  std::size_t FindRun(std::size_t slabs) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::size_t LongestRun() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool MakeSpan(std::size_t record_bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const int fd_;
  const std::span<std::byte> memory_;
  const std::size_t slab_bytes_;
  const std::size_t slab_count_;

  mutable absl::Mutex mutex_;
  std::vector<bool> slab_used_ ABSL_GUARDED_BY(mutex_);
  absl::btree_map<std::size_t, Span> spans_ ABSL_GUARDED_BY(mutex_);  // by first slab
  // Spans with a free slot, by record size.
  absl::btree_map<std::size_t, absl::btree_set<std::size_t>> open_ ABSL_GUARDED_BY(mutex_);
  std::uint64_t allocated_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace kvist
