// A model loaded from a GGUF file: configuration and forward pass.
//
// Batch invariance: the KV and logits of a token depend on its sequence alone, bit for bit, never on how the tokens
// were split into Forward calls or on the number of threads. That is what makes "a hit equals a cold run" testable
// as equality.
//
// Thread safety: const methods from any thread; Forward calls on one model run one at a time (it owns the scratch).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cachestore/key/key_hasher.h"
#include "engine/model/gguf.h"
#include "engine/paged_kv/kv_pages.h"

namespace kvist::engine {

struct ModelConfig {
  std::string architecture;  // "llama"
  std::uint32_t layers = 0;
  std::uint32_t hidden = 0;
  std::uint32_t heads = 0;
  std::uint32_t kv_heads = 0;
  std::uint32_t head_dim = 0;
  std::uint32_t ffn = 0;
  std::uint32_t vocab = 0;
  std::uint32_t context = 0;  // longest sequence it was trained for
  float rms_epsilon = 1e-5f;
  float rope_base = 10000.0f;
  std::uint32_t rope_dims = 0;
};

struct KvLayout {
  std::string layout;      // NamespaceSpec::layout: kind, layers, heads, dims, dtype, order
  std::string positional;  // NamespaceSpec::positional
  std::uint32_t layers = 0;
  std::uint64_t layer_bytes = 0;  // of one page of page_tokens
};

struct ModelOptions {
  std::size_t threads = 0;  // 0: the machine's cores
};

class Model {
 public:
  // InvalidArgument names an unsupported architecture, a missing or misshapen tensor, an unsupported tensor type.
  static absl::StatusOr<std::unique_ptr<Model>> Load(std::shared_ptr<const GgufFile> file, const ModelOptions& options);
  virtual ~Model() = default;

  virtual const ModelConfig& config() const = 0;
  virtual KvLayout kv_layout(std::size_t page_tokens) const = 0;

  // Computes tokens at positions [start, start + tokens.size()) of one sequence, reading KV of earlier positions from
  // `kv` and writing theirs into it (those pages must be writable). `logits`: empty, or config().vocab floats that
  // receive the last token's. InvalidArgument: beyond the context or the pages, token id outside the vocabulary.
  virtual absl::Status Forward(std::span<const TokenId> tokens, std::size_t start, KvPages& kv,
                               std::span<float> logits) = 0;
};

}  // namespace kvist::engine
