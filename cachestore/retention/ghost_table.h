// GhostTable: a bounded, approximate memory of blocks that left, with how often each was used (0 to 3).
// Two bytes a ghost: buckets of eight, first in first out, holding 14 bits of the key's hash. A stranger is taken for a
// ghost about once in 2,000 lookups; this only ever colours a guess about reuse.
// Not thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace kvist {

class GhostTable {
 public:
  static constexpr unsigned kUsesMax = 3;

  // Remembers about `ghosts` blocks, rounded up to a power of two.
  explicit GhostTable(std::size_t ghosts);

  void Add(std::uint64_t hash, unsigned uses);
  // Forgets it and says how often it was used; nullopt if not remembered.
  std::optional<unsigned> Take(std::uint64_t hash);
  // Makes room for at least so many, keeping those known. Never shrinks.
  void GrowTo(std::size_t ghosts);

  std::size_t capacity() const { return buckets_.size() * kWays; }
  std::size_t MemoryBytes() const { return buckets_.capacity() * sizeof(Bucket); }

 private:
  static constexpr std::size_t kWays = 8;
  using Bucket = std::array<std::uint16_t, kWays>;  // newest first; 0: empty. Upper 14 bits: of the hash; lower 2: uses

  Bucket& BucketOf(std::uint64_t hash) { return buckets_[hash & (buckets_.size() - 1)]; }

  std::vector<Bucket> buckets_;
};

}  // namespace kvist
