// Chained block keys: key = XXH3_128(secret; parent_key ‖ token ids as LE32), root = namespace digest.
// The parent key is hashed as hi then lo, each 8 bytes little-endian. Keys depend on nothing else: not on
// process, language, platform or hash seed (golden vectors: tests/cachestore/key/key_hasher_test.cc).
// Immutable after construction; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "cachestore/key/digest.h"

namespace kvist {

using TokenId = std::uint32_t;

class KeyHasher {
 public:
  // XXH3's default secret size. Random per store cluster, so that outsiders cannot craft collisions.
  static constexpr std::size_t kSecretBytes = 192;
  using Secret = std::array<std::byte, kSecretBytes>;

  explicit KeyHasher(const Secret& secret) : secret_(secret) {}

  // Digest of a namespace's canonical encoding (NamespaceSpec::Canonical).
  Digest128 Root(std::string_view canonical) const;

  // Key of the block that holds `tokens` and follows `parent`.
  BlockKey Next(const BlockKey& parent, std::span<const TokenId> tokens) const;

  // Keys of all full blocks of `tokens`, in order; a trailing partial block has none.
  std::vector<BlockKey> Chain(const Digest128& root, std::span<const TokenId> tokens, std::uint32_t block_tokens) const;

 private:
  Secret secret_;
};

}  // namespace kvist
