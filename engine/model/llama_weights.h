// The "llama" architecture's tensors, found in a GGUF file and checked against the configuration. Matrices point into
// the file's mapping, which must outlive them. Immutable after loading; any thread.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/gguf.h"
#include "engine/model/llama_config.h"
#include "kernels/ops.h"

namespace kvist::engine {

struct LlamaLayer {
  std::vector<float> attention_norm;  // [hidden]
  std::vector<float> ffn_norm;        // [hidden]
  kernels::Matrix q;                  // [heads * head_dim][hidden]
  kernels::Matrix k;                  // [kv_heads * head_dim][hidden]
  kernels::Matrix v;                  // [kv_heads * head_dim][hidden]
  kernels::Matrix attention_out;      // [hidden][heads * head_dim]
  kernels::Matrix gate;               // [ffn][hidden]
  kernels::Matrix up;                 // [ffn][hidden]
  kernels::Matrix down;               // [hidden][ffn]
};

struct LlamaWeights {
  kernels::Matrix embedding;       // [vocab][hidden]
  kernels::Matrix output;          // [vocab][hidden]; the embedding where the file has no output.weight
  std::vector<float> output_norm;  // [hidden]
  std::vector<LlamaLayer> layers;
};

// Also sets config.model.vocab, from the embedding's rows. InvalidArgument names the tensor that is missing, misshapen
// or of an unsupported type, or that the file has and this architecture would ignore.
absl::StatusOr<LlamaWeights> LoadLlamaWeights(const GgufFile& file, LlamaConfig& config);

}  // namespace kvist::engine
