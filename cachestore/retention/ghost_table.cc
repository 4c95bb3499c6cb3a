#include "cachestore/retention/ghost_table.h"

#include <algorithm>
#include <bit>

namespace kvist {
namespace {

constexpr unsigned kUsesBits = 2;

// From the upper end of the hash: its lower end chooses the bucket. Never 0, which means empty.
std::uint16_t Fingerprint(std::uint64_t hash) {
  const auto bits = static_cast<std::uint16_t>(hash >> 50);
  return static_cast<std::uint16_t>(std::max<std::uint16_t>(bits, 1) << kUsesBits);
}

}  // namespace

GhostTable::GhostTable(std::size_t ghosts)
    : buckets_(std::bit_ceil(std::max<std::size_t>(1, (ghosts + kWays - 1) / kWays))) {}

void GhostTable::Add(std::uint64_t hash, unsigned uses) {
  Bucket& bucket = BucketOf(hash);
  std::shift_right(bucket.begin(), bucket.end(), 1);
  bucket[0] = static_cast<std::uint16_t>(Fingerprint(hash) | std::min(uses, kUsesMax));
}

std::optional<unsigned> GhostTable::Take(std::uint64_t hash) {
  Bucket& bucket = BucketOf(hash);
  const std::uint16_t wanted = Fingerprint(hash);
  const auto it = std::ranges::find_if(bucket, [&](std::uint16_t ghost) { return (ghost & ~kUsesMax) == wanted; });
  if (it == bucket.end()) return std::nullopt;
  const unsigned uses = *it & kUsesMax;
  std::shift_left(it, bucket.end(), 1);
  bucket.back() = 0;
  return uses;
}

void GhostTable::GrowTo(std::size_t ghosts) {
  while (capacity() < ghosts) {
    // A bucket's ghosts belong to it or to its new twin, which their fingerprints can't tell: both get them. The copy
    // in the wrong one is never asked for, and leaves in its turn.
    buckets_.reserve(buckets_.size() * 2);
    buckets_.insert(buckets_.end(), buckets_.begin(), buckets_.end());
  }
}

}  // namespace kvist
