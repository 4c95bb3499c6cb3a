// The "llama" architecture's configuration, from a GGUF file's metadata. Every value is untrusted and bounded here.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/gguf.h"
#include "engine/model/model.h"

namespace kvist::engine {

struct LlamaConfig {
  ModelConfig model;
  // Radians per position of each rotated pair: base^(-2i/dims), divided by linear scaling and by the file's factors.
  std::vector<double> rope_frequencies;  // [rope_dims / 2]
  std::string positional;                // NamespaceSpec::positional

  std::uint32_t query_width() const { return model.heads * model.head_dim; }
  std::uint32_t kv_width() const { return model.kv_heads * model.head_dim; }
};

// InvalidArgument names the key (or tensor), what it says and what Kvist can do with.
absl::StatusOr<LlamaConfig> ReadLlamaConfig(const GgufFile& file);

}  // namespace kvist::engine
