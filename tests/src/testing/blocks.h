// Blocks for tests: a small namespace, prompts, and payloads that are known from their key's inputs.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cachestore/await.h"
#include "cachestore/prefix_store.h"

namespace kvist::testing {

inline NamespaceSpec SmallSpec(const std::string& salt = "", std::uint64_t layer_bytes = 16384) {
  NamespaceSpec spec;
  spec.model = "test-model";
  spec.layout = "test-layout";
  spec.tenant = "tenant";
  spec.salt = salt;
  spec.block_tokens = 16;
  spec.layers = 4;
  spec.layer_bytes = layer_bytes;
  return spec;
}

inline std::vector<TokenId> Prompt(std::size_t blocks, TokenId seed = 1) {
  std::vector<TokenId> tokens(blocks * 16);
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = seed * 100'000 + static_cast<TokenId>(i);
  return tokens;
}

// The payload of a prompt's block: every word tells seed, block and position.
inline void FillPayload(std::span<std::byte> payload, TokenId seed, std::size_t block) {
  for (std::size_t at = 0; at + 8 <= payload.size(); at += 8) {
    const std::uint64_t word = (std::uint64_t{seed} << 48) ^ (std::uint64_t{block} << 32) ^ (at * 2654435761u);
    std::memcpy(payload.data() + at, &word, 8);
  }
}

inline bool PayloadIs(std::span<const std::byte> payload, TokenId seed, std::size_t block) {
  std::vector<std::byte> expected(payload.size());
  FillPayload(expected, seed, block);
  return std::memcmp(expected.data(), payload.data(), payload.size()) == 0;
}

inline absl::StatusOr<BlockKey> PutBlock(PrefixStore* store, const NamespaceId& ns, const BlockKey& parent,
                                         std::span<const TokenId> tokens, TokenId seed, std::size_t block,
                                         Durability durability = Durability::kMemory) {
  auto grant = store->Grant(ns);
  if (!grant.ok()) return grant.status();
  FillPayload(grant->payload(), seed, block);
  CommitRequest request{.ns = ns,
                        .parent = parent,
                        .tokens = std::vector<TokenId>(tokens.begin(), tokens.end()),
                        .grant = std::move(*grant),
                        .durability = durability};
  return Await<BlockKey>([&](Done<BlockKey> done) { store->Commit(std::move(request), {}, std::move(done)); });
}

inline absl::Status PutPrompt(PrefixStore* store, const NamespaceId& ns, std::size_t blocks, TokenId seed = 1,
                              Durability durability = Durability::kMemory) {
  const std::vector<TokenId> tokens = Prompt(blocks, seed);
  BlockKey parent = ns;
  for (std::size_t i = 0; i < blocks; ++i) {
    const auto key = PutBlock(store, ns, parent, std::span(tokens).subspan(i * 16, 16), seed, i, durability);
    if (!key.ok()) return key.status();
    parent = *key;
  }
  return absl::OkStatus();
}

inline absl::StatusOr<Lease> AcquireAll(PrefixStore* store, const NamespaceId& ns, std::span<const TokenId> tokens) {
  return Await<Lease>([&](Done<Lease> done) { store->Acquire(ns, tokens, 1'000'000, {}, std::move(done)); });
}

// How many blocks a prompt hits, each with exactly its payload; -1 for an error or a wrong byte.
inline int GoodHits(PrefixStore* store, const NamespaceId& ns, std::size_t blocks, TokenId seed = 1) {
  const auto lease = AcquireAll(store, ns, Prompt(blocks, seed));
  if (!lease.ok()) return -1;
  for (std::size_t i = 0; i < lease->blocks().size(); ++i) {
    if (!PayloadIs(lease->blocks()[i].payload, seed, i)) return -1;
  }
  return static_cast<int>(lease->blocks().size());
}

}  // namespace kvist::testing
