#include "src/protocol/convert.h"

#include <bit>
#include <cstring>

#include "fmt/format.h"

namespace kvist::protocol {

static_assert(std::endian::native == std::endian::little, "token ids travel as little-endian bytes");

void ToWire(const Digest128& digest, v1::Digest* wire) {
  wire->set_hi(digest.hi);
  wire->set_lo(digest.lo);
}

Digest128 FromWire(const v1::Digest& wire) { return {wire.hi(), wire.lo()}; }

void ToWire(const NamespaceSpec& spec, v1::NamespaceSpec* wire) {
  wire->set_model(spec.model);
  wire->set_layout(spec.layout);
  wire->set_positional(spec.positional);
  wire->set_adapter(spec.adapter);
  wire->set_media(spec.media);
  wire->set_tenant(spec.tenant);
  wire->set_salt(spec.salt);
  wire->set_block_tokens(spec.block_tokens);
  wire->set_layers(spec.layers);
  wire->set_layer_bytes(spec.layer_bytes);
}

NamespaceSpec FromWire(const v1::NamespaceSpec& wire) {
  return {.model = wire.model(),
          .layout = wire.layout(),
          .positional = wire.positional(),
          .adapter = wire.adapter(),
          .media = wire.media(),
          .tenant = wire.tenant(),
          .salt = wire.salt(),
          .block_tokens = wire.block_tokens(),
          .layers = wire.layers(),
          .layer_bytes = wire.layer_bytes()};
}

namespace {

void TierStatsToWire(const TierStats& stats, v1::TierStats* wire) {
  wire->set_blocks(stats.blocks);
  wire->set_bytes(stats.bytes);
  wire->set_capacity_bytes(stats.capacity_bytes);
}

TierStats TierStatsFromWire(const v1::TierStats& wire) {
  return {.blocks = wire.blocks(), .bytes = wire.bytes(), .capacity_bytes = wire.capacity_bytes()};
}

void SharedStatsToWire(const SharedStats& stats, v1::SharedStats* wire) {
  wire->set_available(stats.available);
  wire->set_hit_blocks(stats.hit_blocks);
  wire->set_read_bytes(stats.read_bytes);
  wire->set_written_blocks(stats.written_blocks);
  wire->set_written_bytes(stats.written_bytes);
  wire->set_timeouts(stats.timeouts);
  wire->set_errors(stats.errors);
  wire->set_corrupt_blocks(stats.corrupt_blocks);
  wire->set_write_back_pending(stats.write_back_pending);
  wire->set_write_back_dropped(stats.write_back_dropped);
}

SharedStats SharedStatsFromWire(const v1::StatsReply& reply) {
  const v1::SharedStats& wire = reply.shared();
  return {.configured = reply.has_shared(),
          .available = wire.available(),
          .hit_blocks = wire.hit_blocks(),
          .read_bytes = wire.read_bytes(),
          .written_blocks = wire.written_blocks(),
          .written_bytes = wire.written_bytes(),
          .timeouts = wire.timeouts(),
          .errors = wire.errors(),
          .corrupt_blocks = wire.corrupt_blocks(),
          .write_back_pending = wire.write_back_pending(),
          .write_back_dropped = wire.write_back_dropped()};
}

}  // namespace

void ToWire(const StoreStats& stats, v1::StatsReply* wire) {
  TierStatsToWire(stats.dram, wire->mutable_dram());
  TierStatsToWire(stats.nvme, wire->mutable_nvme());
  if (stats.shared.configured) SharedStatsToWire(stats.shared, wire->mutable_shared());
  wire->set_namespaces(stats.namespaces);
  wire->set_leased_blocks(stats.leased_blocks);
  wire->set_hit_blocks_dram(stats.hit_blocks_dram);
  wire->set_hit_blocks_nvme(stats.hit_blocks_nvme);
  wire->set_miss_blocks(stats.miss_blocks);
  wire->set_committed_blocks(stats.committed_blocks);
  wire->set_duplicate_commits(stats.duplicate_commits);
  wire->set_evicted_blocks_dram(stats.evicted_blocks_dram);
  wire->set_evicted_blocks_nvme(stats.evicted_blocks_nvme);
  wire->set_expired_blocks(stats.expired_blocks);
  wire->set_corrupt_blocks(stats.corrupt_blocks);
  wire->set_write_back_pending(stats.write_back_pending);
  wire->set_device_errors(stats.device_errors);
  wire->set_loading(stats.loading);
}

StoreStats FromWire(const v1::StatsReply& wire) {
  return {.dram = TierStatsFromWire(wire.dram()),
          .nvme = TierStatsFromWire(wire.nvme()),
          .shared = SharedStatsFromWire(wire),
          .namespaces = wire.namespaces(),
          .leased_blocks = wire.leased_blocks(),
          .hit_blocks_dram = wire.hit_blocks_dram(),
          .hit_blocks_nvme = wire.hit_blocks_nvme(),
          .miss_blocks = wire.miss_blocks(),
          .committed_blocks = wire.committed_blocks(),
          .duplicate_commits = wire.duplicate_commits(),
          .evicted_blocks_dram = wire.evicted_blocks_dram(),
          .evicted_blocks_nvme = wire.evicted_blocks_nvme(),
          .expired_blocks = wire.expired_blocks(),
          .corrupt_blocks = wire.corrupt_blocks(),
          .write_back_pending = wire.write_back_pending(),
          .device_errors = wire.device_errors(),
          .loading = wire.loading()};
}

void ToWire(const NamespaceInfo& info, v1::ListNamespacesReply::Item* wire) {
  ToWire(info.ns.id, wire->mutable_ns()->mutable_id());
  ToWire(info.ns.spec, wire->mutable_ns()->mutable_spec());
  wire->set_blocks(info.blocks);
  wire->set_bytes(info.bytes);
  if (info.last_used > absl::UnixEpoch()) wire->set_last_used_unix_ms(absl::ToUnixMillis(info.last_used));
}

NamespaceInfo FromWire(const v1::ListNamespacesReply::Item& wire) {
  return {.ns = {.id = FromWire(wire.ns().id()), .spec = FromWire(wire.ns().spec())},
          .blocks = wire.blocks(),
          .bytes = wire.bytes(),
          .last_used =
              wire.has_last_used_unix_ms() ? absl::FromUnixMillis(wire.last_used_unix_ms()) : absl::InfinitePast()};
}

v1::TierId ToWire(Tier tier, v1::TierId last_known) {
  const auto id = static_cast<v1::TierId>(tier);
  return id <= last_known ? id : last_known;
}

absl::StatusOr<Tier> TierFromWire(int tier) {
  if (tier == static_cast<int>(Tier::kDram)) return Tier::kDram;
  if (tier == static_cast<int>(Tier::kNvme)) return Tier::kNvme;
  if (tier == static_cast<int>(Tier::kShared)) return Tier::kShared;
  return absl::InternalError(fmt::format("unknown tier {} in a reply", tier));
}

std::string TokensToWire(std::span<const TokenId> tokens) {
  return std::string(reinterpret_cast<const char*>(tokens.data()), tokens.size_bytes());
}

absl::StatusOr<std::vector<TokenId>> TokensFromWire(std::string_view bytes) {
  if (bytes.size() % sizeof(TokenId) != 0) {
    return absl::InvalidArgumentError(
        fmt::format("tokens: {} bytes is not a whole number of 32-bit token ids", bytes.size()));
  }
  std::vector<TokenId> tokens(bytes.size() / sizeof(TokenId));
  if (!tokens.empty()) std::memcpy(tokens.data(), bytes.data(), bytes.size());
  return tokens;
}

}  // namespace kvist::protocol
