#include "cachestore/key/key_hasher.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstring>

#include "cachestore/key/namespace_spec.h"
#include "xxhash.h"

namespace kvist {
namespace {

static_assert(std::endian::native == std::endian::little, "token ids are hashed as LE32 straight from memory");

Digest128 FromXxh(const XXH128_hash_t& hash) { return {.hi = hash.high64, .lo = hash.low64}; }

}  // namespace

Digest128 KeyHasher::Root(std::string_view canonical) const {
  return FromXxh(XXH3_128bits_withSecret(canonical.data(), canonical.size(), secret_.data(), secret_.size()));
}

BlockKey KeyHasher::Next(const BlockKey& parent, std::span<const TokenId> tokens) const {
  assert(tokens.size() <= NamespaceSpec::kBlockTokensMax);
  std::array<std::byte, sizeof(BlockKey) + NamespaceSpec::kBlockTokensMax * sizeof(TokenId)> input;
  const std::size_t count = std::min<std::size_t>(tokens.size(), NamespaceSpec::kBlockTokensMax);
  std::memcpy(input.data(), &parent.hi, 8);
  std::memcpy(input.data() + 8, &parent.lo, 8);
  std::memcpy(input.data() + 16, tokens.data(), count * sizeof(TokenId));
  return FromXxh(XXH3_128bits_withSecret(input.data(), 16 + count * sizeof(TokenId), secret_.data(), secret_.size()));
}

std::vector<BlockKey> KeyHasher::Chain(const Digest128& root, std::span<const TokenId> tokens,
                                       std::uint32_t block_tokens) const {
  assert(block_tokens > 0);
  std::vector<BlockKey> keys;
  keys.reserve(tokens.size() / block_tokens);
  BlockKey parent = root;
  while (tokens.size() >= block_tokens) {
    parent = Next(parent, tokens.first(block_tokens));
    keys.push_back(parent);
    tokens = tokens.subspan(block_tokens);
  }
  return keys;
}

}  // namespace kvist
