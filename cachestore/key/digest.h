// A 128-bit digest: namespace ids and block keys are both one.
// Value type; trivially copyable; any thread.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace kvist {

struct Digest128 {
  std::uint64_t hi = 0;
  std::uint64_t lo = 0;

  friend auto operator<=>(const Digest128&, const Digest128&) = default;

  // 32 lower-case hex digits, high half first (the canonical XXH3_128 order).
  std::string ToHex() const;
  static std::optional<Digest128> FromHex(std::string_view hex);

  template <typename H>
  friend H AbslHashValue(H state, const Digest128& d) {
    return H::combine(std::move(state), d.lo);  // a digest's halves are each as good as random
  }
};

using NamespaceId = Digest128;
using BlockKey = Digest128;

}  // namespace kvist
