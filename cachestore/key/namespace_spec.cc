#include "cachestore/key/namespace_spec.h"

#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "fmt/format.h"

namespace kvist {
namespace {

static_assert(std::endian::native == std::endian::little, "the canonical encoding copies integers as they are");

// The first bytes of every encoding; the digit is the encoding's version. A changed encoding changes every key.
constexpr std::string_view kPrefix = "kvist-namespace-1\n";

// The string fields in their fixed order. New fields go at the end, with a new version.
template <typename Spec>
auto StringFields(Spec& spec) {
  return std::array{
      std::pair{std::string_view("model"), &spec.model},
      std::pair{std::string_view("layout"), &spec.layout},
      std::pair{std::string_view("positional"), &spec.positional},
      std::pair{std::string_view("adapter"), &spec.adapter},
      std::pair{std::string_view("media"), &spec.media},
      std::pair{std::string_view("tenant"), &spec.tenant},
      std::pair{std::string_view("salt"), &spec.salt},
  };
}

template <typename T>
void Append(std::string& out, T value) {
  char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));
  out.append(bytes, sizeof(T));
}

template <typename T>
bool Take(std::string_view& in, T& value) {
  if (in.size() < sizeof(T)) return false;
  std::memcpy(&value, in.data(), sizeof(T));
  in.remove_prefix(sizeof(T));
  return true;
}

}  // namespace

absl::Status NamespaceSpec::Validate() const {
  for (const auto& [name, value] : StringFields(*this)) {
    if (value->size() > kStringBytesMax) {
      return absl::InvalidArgumentError(
          fmt::format("namespace field {} is {} bytes long; at most {}", name, value->size(), kStringBytesMax));
    }
  }
  if (model.empty()) return absl::InvalidArgumentError("namespace field model is empty; it must name the weights");
  if (!std::has_single_bit(block_tokens) || block_tokens < kBlockTokensMin || block_tokens > kBlockTokensMax) {
    return absl::InvalidArgumentError(fmt::format("namespace field block_tokens is {}; a power of two from {} to {}",
                                                  block_tokens, kBlockTokensMin, kBlockTokensMax));
  }
  if (layers < 1 || layers > kLayersMax) {
    return absl::InvalidArgumentError(fmt::format("namespace field layers is {}; from 1 to {}", layers, kLayersMax));
  }
  const std::uint64_t layer_bytes_max = kPayloadBytesMax / layers;
  if (layer_bytes < 1 || layer_bytes > layer_bytes_max) {
    return absl::InvalidArgumentError(fmt::format("namespace field layer_bytes is {}; from 1 to {} with {} layers",
                                                  layer_bytes, layer_bytes_max, layers));
  }
  return absl::OkStatus();
}

std::string NamespaceSpec::Canonical() const {
  std::string out(kPrefix);
  for (const auto& [name, value] : StringFields(*this)) {
    Append(out, static_cast<std::uint64_t>(value->size()));
    out.append(*value);
  }
  Append(out, block_tokens);
  Append(out, layers);
  Append(out, layer_bytes);
  return out;
}

absl::StatusOr<NamespaceSpec> NamespaceSpec::FromCanonical(std::string_view bytes) {
  if (!bytes.starts_with(kPrefix)) return absl::DataLossError("namespace encoding: unknown version or not one");
  bytes.remove_prefix(kPrefix.size());
  NamespaceSpec spec;
  for (const auto& [name, value] : StringFields(spec)) {
    std::uint64_t size = 0;
    if (!Take(bytes, size) || size > bytes.size()) {
      return absl::DataLossError(fmt::format("namespace encoding: truncated in field {}", name));
    }
    value->assign(bytes.substr(0, size));
    bytes.remove_prefix(size);
  }
  if (!Take(bytes, spec.block_tokens) || !Take(bytes, spec.layers) || !Take(bytes, spec.layer_bytes)) {
    return absl::DataLossError("namespace encoding: truncated in its sizes");
  }
  if (!bytes.empty()) return absl::DataLossError("namespace encoding: bytes after the end");
  return spec;
}

}  // namespace kvist
