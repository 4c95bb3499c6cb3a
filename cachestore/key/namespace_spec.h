// What makes KV interchangeable. Two requests share blocks exactly when every field here is equal.
// Plain value type. The store treats the strings as opaque: only the engine knows what they mean.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace kvist {

struct NamespaceSpec {
  static constexpr std::uint32_t kBlockTokensMin = 16;   // smaller: more index than payload
  static constexpr std::uint32_t kBlockTokensMax = 512;  // larger: too little of a prompt is in full blocks
  static constexpr std::uint32_t kLayersMax = 4096;
  // One block's payload: over ten times the largest known layouts (8 MiB at 64 tokens, 64 MiB at 512), so that a size
  // read from a damaged file or a hostile peer cannot ask for all memory.
  static constexpr std::uint64_t kPayloadBytesMax = std::uint64_t{1} << 30;
  static constexpr std::size_t kStringBytesMax = 4096;  // each string field

  std::string model;                // fingerprint of the weights' bytes (not a name: names are reused)
  std::string layout;               // KV kind, layers, heads, dims, dtype, order within a layer, tensor-parallel shard
  std::string positional;           // RoPE base, scaling, factors
  std::string adapter;              // LoRA or other adapter id; empty for none
  std::string media;                // digests of multimodal inputs that sit in the prefix; empty for none
  std::string tenant;               // who owns it; quotas and drops go by tenant
  std::string salt;                 // further isolation within a tenant
  std::uint32_t block_tokens = 64;  // power of two, 16..512
  std::uint32_t layers = 0;         // layer chunks per payload, 1..4096
  std::uint64_t layer_bytes = 0;    // bytes of one layer's chunk; payload = layers * layer_bytes, layer-major

  std::uint64_t payload_bytes() const { return std::uint64_t{layers} * layer_bytes; }

  // InvalidArgument names the field and its bounds.
  absl::Status Validate() const;

  // Canonical bytes: every field, length-prefixed and in fixed order, so that no two specs encode alike.
  std::string Canonical() const;
  // Inverse of Canonical; DataLoss if the bytes are not a canonical encoding.
  static absl::StatusOr<NamespaceSpec> FromCanonical(std::string_view bytes);

  friend bool operator==(const NamespaceSpec&, const NamespaceSpec&) = default;
};

}  // namespace kvist
