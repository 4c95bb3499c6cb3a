// What a tier says of a block that it is asked for.
#pragma once

#include <cstdint>

namespace kvist {

enum class Presence : std::uint8_t { kAbsent, kExpired, kPresent };

}  // namespace kvist
