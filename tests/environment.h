// What the environment sets for tests with random input.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <random>
#include <string_view>

namespace kvist {

inline std::uint64_t FromEnvironment(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

// KVIST_SEED; "random" (make soak) draws one. Unset it is fixed: a change that is tested fails by its own doing only.
inline std::uint64_t TestSeed() {
  const char* text = std::getenv("KVIST_SEED");
  if (text != nullptr && std::string_view(text) == "random") return std::random_device{}();
  return FromEnvironment("KVIST_SEED", 1);
}

}  // namespace kvist
