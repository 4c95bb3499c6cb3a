// Finds special tokens in text: leftmost first, the longest of those that start at one place.
// Immutable after the Adds; then any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "cachestore/key/key_hasher.h"

namespace kvist::engine {

class SpecialTokens {
 public:
  struct Found {
    std::size_t begin = 0;
    std::size_t end = 0;
    TokenId token = 0;
  };

  SpecialTokens() : nodes_(1) {}

  // `always`: recognised even where the text is plain (user-defined tokens are text of the model's own; control
  // tokens are not). Empty texts are ignored.
  void Add(std::string_view text, TokenId token, bool always);

  // The first at or after `from`.
  std::optional<Found> Next(std::string_view text, std::size_t from, bool plain) const;

 private:
  struct Node {  // of a trie over bytes
    std::optional<TokenId> token;
    bool always = false;
  };

  std::optional<Found> LongestAt(std::string_view text, std::size_t at, bool plain) const;

  std::vector<Node> nodes_;
  absl::flat_hash_map<std::uint64_t, std::uint32_t> edges_;  // node << 8 | byte -> node
  std::array<bool, 256> begins_{};                           // bytes that begin some token
};

}  // namespace kvist::engine
