// ReuseModel: learns, from the calls themselves, how likely blocks are to be used again, and turns that into one number
// per block: its value per unit of space and time.
//
// Blocks fall into a few classes (how often used so far; whether anything ever followed it in a chain). A sample of
// blocks, resident or not, is followed from use to use. Per class and age since last use, that gives the chance of
// reuse in each age range; classes with little evidence of their own lean on all classes' common shape, and everything
// starts from "twice as old, half as likely", which is LRU. From there the value of a block of class c and age a is its
// Gittins index: the best ratio, over all ages T > a to give up at, of the chance that it is reused before T to the
// time it will then have taken up.
//
// Sampling: chains are reused as a whole, so a chain of 2,000 blocks is no more evidence than one of 20. Only the
// blocks at depths 2^k - 1 and 3 * 2^k - 1 are followed; in large stores only a share of those, chosen by hash. Time is
// counted by the owner (ReuseValuePolicy counts chains), so that ages mean the same at any block size. Bounded memory;
// deterministic. Not thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/container/flat_hash_map.h"

namespace kvist {

class ReuseModel {
 public:
  using Time = std::uint32_t;  // may wrap around
  using Class = std::uint8_t;
  static constexpr int kClasses = 8;

  ReuseModel();

  // Whether a block at this depth of its chain is followed (if its hash is sampled too: see Used).
  static bool Follows(std::uint32_t depth);

  // A followed block was used (first, or again): ends its interval since its last use and begins one of class `kind`.
  void Used(std::uint64_t hash, Class kind, Time now);
  // A followed block turns out to be of another class than its last Used said.
  void Reclassify(std::uint64_t hash, Class kind);

  // Counts a call of the owner's, and learns anew when enough have passed. `resident`: blocks in the store.
  void Step(Time now, std::size_t resident);

  float Value(Class kind, Time age) const { return value_[kind][AgeRange(age)]; }

  std::size_t followed() const { return followed_.size(); }
  std::size_t MemoryBytes() const;

 private:
  // Two ranges per octave of age: 0, 1, 2, 3, 4..5, 6..7, 8..11, ... The last one is open.
  static constexpr int kRanges = 48;
  template <typename T>
  using Table = std::array<std::array<T, kRanges>, kClasses>;

  struct Interval {
    Time since = 0;
    Class kind = 0;
    std::uint8_t range = 0;  // of age; those below it are counted in at_risk_
  };

  static int AgeRange(Time age);
  static double RangeStart(int range);

  bool Samples(std::uint64_t hash) const { return (hash >> 32 & ((1u << sample_shift_) - 1)) == 0; }
  void Advance(Interval& interval, Time now);
  void Learn(Time now, std::size_t resident);
  void Bound(Time now, std::size_t resident);
  void Revalue();

  absl::flat_hash_map<std::uint64_t, Interval> followed_;
  unsigned sample_shift_ = 0;  // one hash in 2^sample_shift_ is followed
  std::uint64_t steps_left_;

  // Decaying counts: intervals that lived through an age range or were reused in it, and those reused in it.
  Table<double> at_risk_ = {};
  Table<double> reused_ = {};
  Table<float> value_ = {};
};

}  // namespace kvist
