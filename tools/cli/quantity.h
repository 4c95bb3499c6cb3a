// Amounts as people read them.
#pragma once

#include <cstdint>
#include <string>

namespace kvist::cli {

// "512 B", "1.4 MiB", "16 GiB": binary units, one decimal below 10 of a unit.
std::string HumanBytes(std::uint64_t bytes);

}  // namespace kvist::cli
