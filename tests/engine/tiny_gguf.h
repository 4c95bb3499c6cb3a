// Tiny but complete Llama-architecture GGUF files for tests: a few layers of fixed pseudo-random weights, a byte-level
// BPE vocabulary with merges and special tokens, and a ChatML template. The same options give the same bytes on any
// machine.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "kernels/tensor_type.h"
#include "tests/engine/gguf_writer.h"

namespace kvist::engine {

// Token types, numbered as in tokenizer.ggml.token_type.
inline constexpr std::int32_t kTokenNormal = 1;
inline constexpr std::int32_t kTokenControl = 3;
inline constexpr std::int32_t kTokenUserDefined = 4;

inline constexpr std::string_view kTinyDefaultSystem = "You are tiny.";

struct TinyGgufOptions {
  std::uint64_t seed = 1;
  std::string architecture = "llama";
  std::uint32_t layers = 2;
  std::uint32_t heads = 4;
  std::uint32_t kv_heads = 2;
  std::uint32_t head_dim = 16;  // hidden = heads * head_dim; 64 with 4 heads suits the 256-element K-quant blocks
  std::uint32_t ffn = 128;      // 256 for K-quants
  std::uint32_t context = 1024;
  float rope_base = 10000.0f;
  // Of every matrix. Norms are F32. Quantised matrices get random blocks of the right spread.
  kernels::TensorType matrix_type = kernels::TensorType::kF32;
  bool tied_embeddings = true;      // false: an output.weight of its own
  std::string altered_tensor = {};  // one byte of this tensor's data is changed: other weights, same shape
  std::string pre = "smollm";       // tokenizer.ggml.pre
  std::string tokenizer_model = "gpt2";
  bool add_bos = false;
  std::vector<std::pair<std::string, std::int32_t>> extra_tokens = {};  // text and type, after the merges
  std::string chat_template = {};  // empty: ChatML with kTinyDefaultSystem; "none": no template at all
  std::uint32_t version = 3;
  std::uint32_t alignment = 32;
};

// Token ids of the vocabulary: specials, then the 256 bytes (id = kTinyFirstByteToken + byte), then merges.
inline constexpr std::uint32_t kTinyEndOfText = 0;
inline constexpr std::uint32_t kTinyImStart = 1;
inline constexpr std::uint32_t kTinyImEnd = 2;
inline constexpr std::uint32_t kTinyFirstByteToken = 3;

// The file's bytes. Aborts on options that make no model (a row that is not whole quantisation blocks).
std::string TinyGgufBytes(const TinyGgufOptions& options);
absl::Status WriteTinyGguf(const std::string& path, const TinyGgufOptions& options);

// Only metadata (architecture, tokenizer, template), for a test to add its own tensors or faults to.
GgufWriter TinyGgufMetadata(const TinyGgufOptions& options);

}  // namespace kvist::engine
