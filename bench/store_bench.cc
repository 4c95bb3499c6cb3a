// Figures of the store, each a ratio taken in one run, in which both sides alternate. Medians are compared; for the
// device, whose speed drifts, it is the median of the ratios of neighbouring rounds. bench/store/*_bench.cc says what
// each figure is.
// Usage: store_bench [DIRECTORY on the device to measure; default /var/tmp] [PART...]; the parts are match, dram,
// device, mixed, index and peers, by default all. Exits non-zero if a goal is missed.
#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "bench/store/support.h"
#include "cachestore/lock_order_checks.h"

int main(int argc, char** argv) {
  kvist::SkipLockOrderChecks();
  using Part = void (*)(const std::string&, kvist::bench::Figures&);
  constexpr std::array<std::pair<std::string_view, Part>, 6> kParts = {{{"match", kvist::bench::MatchFigures},
                                                                        {"dram", kvist::bench::DramFigures},
                                                                        {"device", kvist::bench::DeviceFigures},
                                                                        {"mixed", kvist::bench::MixedFigures},
                                                                        {"index", kvist::bench::IndexFigures},
                                                                        {"peers", kvist::bench::PeerFigures}}};
  const std::vector<std::string_view> wanted(argv + std::min(argc, 2), argv + argc);
  for (const std::string_view name : wanted) {
    if (std::ranges::none_of(kParts, [&](const auto& part) { return part.first == name; })) {
      kvist::bench::Fail(
          fmt::format("there is no part '{}'; there are match, dram, device, mixed, index and peers", name));
    }
  }
  kvist::bench::Figures figures;
  const kvist::bench::ScratchDirectory scratch(argc > 1 ? argv[1] : "/var/tmp");
  for (const auto& [name, part] : kParts) {
    if (wanted.empty() || std::ranges::find(wanted, name) != wanted.end()) part(scratch.path(), figures);
  }
  return figures.Report();
}
