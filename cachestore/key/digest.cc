#include "cachestore/key/digest.h"

#include <charconv>

#include "fmt/format.h"

namespace kvist {

std::string Digest128::ToHex() const { return fmt::format("{:016x}{:016x}", hi, lo); }

std::optional<Digest128> Digest128::FromHex(std::string_view hex) {
  if (hex.size() != 32) return std::nullopt;
  Digest128 digest;
  for (auto [part, out] : {std::pair{hex.substr(0, 16), &digest.hi}, std::pair{hex.substr(16), &digest.lo}}) {
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), *out, 16);
    if (error != std::errc() || end != part.data() + part.size()) return std::nullopt;
  }
  return digest;
}

}  // namespace kvist
