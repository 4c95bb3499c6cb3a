#include "tools/cli/quantity.h"

#include <array>
#include <cstddef>

#include "fmt/format.h"

namespace kvist::cli {

std::string HumanBytes(std::uint64_t bytes) {
  constexpr std::array<const char*, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  double amount = static_cast<double>(bytes);
  std::size_t unit = 0;
  // 1023.5 would print as 1024 of the smaller unit.
  while (amount >= 1023.5 && unit + 1 < kUnits.size()) {
    amount /= 1024;
    ++unit;
  }
  const bool decimal = unit > 0 && amount < 9.95;
  return decimal ? fmt::format("{:.1f} {}", amount, kUnits[unit]) : fmt::format("{:.0f} {}", amount, kUnits[unit]);
}

}  // namespace kvist::cli
