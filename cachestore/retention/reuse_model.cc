#include "cachestore/retention/reuse_model.h"

#include <algorithm>
#include <bit>

namespace kvist {
namespace {

// Learning anew costs a pass over the followed blocks: at most about one visit per owner's call at these periods.
constexpr std::uint64_t kStepsMin = 4096;
constexpr std::size_t kResidentPerStep = 4;

// What is kept of the evidence from one learning to the next: after 35 of them, half.
constexpr double kKeep = 0.98;

// Followed blocks at most. Enough for every class and age range to have evidence; 4 MiB or so.
constexpr std::size_t kFollowedMax = std::size_t{1} << 17;
constexpr std::size_t kFollowedMin = 4096;
// Followed blocks per resident one, to see reuse well after eviction...
constexpr std::size_t kFollowedPerResident = 8;
// ...and the resident ones beyond which only a share is followed.
constexpr std::size_t kResidentPerSample = kFollowedMax / 2;

// Evidence that an assumption weighs, in followed intervals; chosen on one part of the traces (docs/eviction.md).
constexpr double kShapeWeight = 500;   // an age range's reuse is like the range's before it
constexpr double kClassWeight = 500;   // a class is reused as often as all are
constexpr double kRangeWeight = 1000;  // a class's reuse comes at the same ages as everybody's
// Before any evidence: the chance per age range. Ranges grow with age, so this falls with age, as in LRU.
constexpr double kFirstGuess = 0.05;
constexpr double kChanceMax = 0.999;

}  // namespace

ReuseModel::ReuseModel() : steps_left_(kStepsMin) { Revalue(); }

bool ReuseModel::Follows(std::uint32_t depth) {
  const std::uint64_t nth = std::uint64_t{depth} + 1;
  const std::uint64_t odd = nth >> std::countr_zero(nth);
  return odd == 1 || odd == 3;
}

int ReuseModel::AgeRange(Time age) {
  if (age < 4) return static_cast<int>(age);
  const int octave = std::bit_width(age) - 1;
  const bool upper = (age >> (octave - 1) & 1) != 0;
  return std::min(2 * octave + (upper ? 1 : 0), kRanges - 1);
}

double ReuseModel::RangeStart(int range) {
  if (range < 4) return range;
  const double octave = static_cast<double>(std::uint64_t{1} << (range / 2));
  return range % 2 == 0 ? octave : octave * 1.5;
}

void ReuseModel::Used(std::uint64_t hash, Class kind, Time now) {
  if (!Samples(hash)) return;
  const auto [it, first] = followed_.try_emplace(hash);
  Interval& interval = it->second;
  if (!first) {
    Advance(interval, now);
    ++at_risk_[interval.kind][interval.range];
    ++reused_[interval.kind][interval.range];
  }
  interval = Interval{now, kind, 0};
}

void ReuseModel::Reclassify(std::uint64_t hash, Class kind) {
  if (const auto it = followed_.find(hash); it != followed_.end()) it->second.kind = kind;
}

void ReuseModel::Step(Time now, std::size_t resident) {
  if (--steps_left_ > 0) return;
  Learn(now, resident);
  steps_left_ = std::max<std::uint64_t>({kStepsMin, resident / kResidentPerStep, followed_.size() / 8});
}

// Counts the age ranges that the interval has outlived since the last time.
void ReuseModel::Advance(Interval& interval, Time now) {
  const int range = AgeRange(now - interval.since);
  for (; interval.range < range; ++interval.range) ++at_risk_[interval.kind][interval.range];
}

void ReuseModel::Learn(Time now, std::size_t resident) {
  for (auto& [hash, interval] : followed_) Advance(interval, now);
  Bound(now, resident);
  Revalue();
  for (auto* table : {&at_risk_, &reused_}) {
    for (auto& row : *table) {
      for (double& count : row) count *= kKeep;
    }
  }
}

// Forgets the longest unused beyond the limit, whole age ranges at a time; samples more sparsely if the store has
// grown.
void ReuseModel::Bound(Time now, std::size_t resident) {
  while (resident >> sample_shift_ > kResidentPerSample) ++sample_shift_;
  const std::size_t limit = std::clamp(resident * kFollowedPerResident, kFollowedMin, kFollowedMax);
  absl::erase_if(followed_, [&](const auto& entry) { return !Samples(entry.first); });
  if (followed_.size() <= limit) return;
  std::array<std::size_t, kRanges> population = {};
  for (const auto& [hash, interval] : followed_) ++population[interval.range];
  int oldest = kRanges - 1;
  for (std::size_t kept = followed_.size(); oldest > 0 && kept > limit; --oldest) kept -= population[oldest];
  absl::erase_if(followed_, [&](const auto& entry) { return AgeRange(now - entry.second.since) > oldest; });
}

void ReuseModel::Revalue() {
  // All classes: the share of reuse that has come by each age (the product-limit estimate, so that intervals still
  // running count for the ages they have reached).
  std::array<double, kRanges + 1> come = {};
  double chance = kFirstGuess;
  double unused = 1;
  for (int range = 0; range < kRanges; ++range) {
    double reused = 0;
    double at_risk = 0;
    for (int kind = 0; kind < kClasses; ++kind) {
      reused += reused_[kind][range];
      at_risk += at_risk_[kind][range];
    }
    chance = (reused + kShapeWeight * chance) / (at_risk + kShapeWeight);
    unused *= 1 - chance;
    come[range + 1] = 1 - unused;
  }
  const double ever = come[kRanges];
  for (double& share : come) share /= ever;

  for (int kind = 0; kind < kClasses; ++kind) {
    // How many of the class are ever reused, each interval weighing by how much of the reuse it would have shown by
    // now.
    double reused = 0;
    double seen = 0;
    for (int range = 0; range < kRanges; ++range) {
      reused += reused_[kind][range];
      seen += at_risk_[kind][range] * (come[range + 1] - come[range]) + reused_[kind][range] * (1 - come[range + 1]);
    }
    const double ever_of_class = std::min(kChanceMax, (reused + kClassWeight * ever) / (seen + kClassWeight));

    std::array<double, kRanges> chances;
    for (int range = 0; range < kRanges; ++range) {
      const double expected = std::min(kChanceMax, ever_of_class * (come[range + 1] - come[range]) /
                                                       std::max(1e-9, 1 - ever_of_class * come[range]));
      chances[range] = (reused_[kind][range] + kRangeWeight * expected) / (at_risk_[kind][range] + kRangeWeight);
    }
    for (int from = 0; from < kRanges; ++from) {
      double alive = 1;
      double gain = 0;
      double time = 0;
      double best = 0;
      for (int range = from; range < kRanges - 1 && alive > 1e-3; ++range) {
        const double width = RangeStart(range + 1) - RangeStart(range);
        gain += alive * chances[range];
        time += alive * width * (1 - chances[range] / 2);
        alive *= 1 - chances[range];
        best = std::max(best, gain / time);
      }
      value_[kind][from] = static_cast<float>(best);
    }
  }
}

std::size_t ReuseModel::MemoryBytes() const {
  return followed_.capacity() * (sizeof(decltype(followed_)::value_type) + 1) + sizeof(*this);
}

}  // namespace kvist
