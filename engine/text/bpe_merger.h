// Byte-pair encoding of one piece: starting from single bytes, the pair with the lowest merge rank is joined, leftmost
// first among equals, until no pair has a rank. Immutable after creation; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "cachestore/key/key_hasher.h"

namespace kvist::engine {

class BpeMerger {
 public:
  // `tokens` are the vocabulary's texts in the byte alphabet; an id whose `mergeable` is false (a special token) never
  // comes out of merging. `merges` are "left right" pairs, best first. InvalidArgument names a malformed merge.
  static absl::StatusOr<BpeMerger> Create(std::span<const std::string> tokens, const std::vector<bool>& mergeable,
                                          std::span<const std::string> merges);

  // Appends the tokens of `piece`. A byte that has no token is left out: so do the tokenizers such vocabularies were
  // made with (SmolLM2 lacks six control characters and bytes that occur in private-use characters only).
  void Encode(std::string_view piece, std::vector<TokenId>& out) const;

  // The byte's own token, if it has one.
  std::optional<TokenId> ByteToken(std::uint8_t byte) const;

 private:
  // A token id, or from vocabulary_size_ on a text that merges pass through but that is no token.
  using Symbol = std::uint32_t;
  static constexpr std::uint32_t kNoRank = std::numeric_limits<std::uint32_t>::max();
  struct Merge {
    std::uint32_t rank = kNoRank;
    Symbol result = 0;
  };
  class Builder;

  Merge Find(Symbol left, Symbol right) const;
  void Append(Symbol symbol, std::vector<TokenId>& out) const;
  void EncodeShort(std::string_view piece, std::vector<TokenId>& out) const;
  void EncodeLong(std::string_view piece, std::vector<TokenId>& out) const;

  std::uint32_t vocabulary_size_ = 0;
  std::array<Symbol, 256> byte_symbols_{};
  absl::flat_hash_map<std::uint64_t, Merge> merges_;  // key: left symbol << 32 | right symbol
  std::vector<std::string> tokenless_;                // bytes of symbol vocabulary_size_ + i
};

}  // namespace kvist::engine
