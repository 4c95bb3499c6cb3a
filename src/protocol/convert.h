// Between the store's types and the wire's. Everything that comes from a peer is checked here or by the store.
// Plain functions; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "cachestore/prefix_store.h"
#include "src/protocol/kvist.pb.h"

namespace kvist::protocol {

void ToWire(const Digest128& digest, v1::Digest* wire);
Digest128 FromWire(const v1::Digest& wire);

void ToWire(const NamespaceSpec& spec, v1::NamespaceSpec* wire);
NamespaceSpec FromWire(const v1::NamespaceSpec& wire);

void ToWire(const StoreStats& stats, v1::StatsReply* wire);
StoreStats FromWire(const v1::StatsReply& wire);

void ToWire(const NamespaceInfo& info, v1::ListNamespacesReply::Item* wire);
NamespaceInfo FromWire(const v1::ListNamespacesReply::Item& wire);

// To a peer that knows tiers up to `last_known`, which stands for those beyond, too.
v1::TierId ToWire(Tier tier, v1::TierId last_known);
absl::StatusOr<Tier> TierFromWire(int tier);

std::string TokensToWire(std::span<const TokenId> tokens);
// InvalidArgument unless the length is a multiple of 4.
absl::StatusOr<std::vector<TokenId>> TokensFromWire(std::string_view bytes);

}  // namespace kvist::protocol
