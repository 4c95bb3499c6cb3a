// The op table: every operation a model's forward pass needs, on the CPU (Highway, best target chosen at run time).
// kernels/cpu/reference.h has a plain twin of each; the tests hold them against each other.
//
// Batch invariance. Each output is one chain of multiply-adds whose order depends on its own inputs alone: over k
// ascending in MatMul, over head dimensions and then over key positions in Attention. How many tokens share a call,
// how rows are split among threads, and the width of the vectors (lanes hold different outputs, never parts of one)
// do not enter into it. So a token's result is the same bit for bit on one thread or many, in any chunking, and on
// every target that has fused multiply-add.
//
// Sizes are trusted here: the model checks them at load. Pointers need no alignment. Any thread; no state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "kernels/tensor_type.h"

namespace kvist::kernels {

// Every row length is a multiple of this: the block of the 32-element quantisations, and at least one vector.
inline constexpr std::size_t kColumnMultiple = 32;

struct RowRange {
  std::size_t begin = 0;
  std::size_t end = 0;
};

// A weight matrix as it stands in the file.
struct Matrix {
  TensorType type = TensorType::kF32;
  const std::byte* data = nullptr;  // [rows][cols], in blocks along cols
  std::size_t rows = 0;
  std::size_t cols = 0;

  std::size_t row_bytes() const {
    const TensorTypeInfo& info = InfoOf(type);
    return cols / info.block_elements * info.block_bytes;
  }
};

// out[i] = value of element i. n is a multiple of the type's block.
void Dequantize(TensorType type, const std::byte* data, std::size_t n, float* out /* [n] */);

// y[t][r] = sum over k of x[t][k] * w[r][k], for rows.begin <= r < rows.end. Split rows between threads at multiples of
// kMatMulRowBlock: other splits give the same bits but waste work.
inline constexpr std::size_t kMatMulRowBlock = 32;
void MatMul(const Matrix& w, const float* x /* [tokens][w.cols] */, std::size_t tokens, RowRange rows,
            float* y /* [tokens][y_stride] */, std::size_t y_stride);

// y = x / sqrt(mean(x^2) + epsilon) * weight
void RmsNorm(const float* x /* [n] */, const float* weight /* [n] */, float epsilon, std::size_t n, float* y /* [n] */);

// Rotates the pairs (2i, 2i+1) of each head's first 2 * pairs dimensions by the angles whose cosines and sines are
// given. (GGUF stores llama weights permuted so that neighbours pair up.)
void Rope(float* x /* [heads][head_dim] */, std::size_t heads, std::size_t head_dim, std::size_t pairs,
          const float* cos_sin /* [pairs][2] */);

// gate = silu(gate) * up
void SiluMul(float* gate /* [n] */, const float* up /* [n] */, std::size_t n);

// x += y
void Add(float* x /* [n] */, const float* y /* [n] */, std::size_t n);

// One layer's chunk of one KV page, F16: K as [kv_heads][head_dim][page_tokens], then V as
// [kv_heads][page_tokens][head_dim]. K is transposed so that a vector of scores reads neighbouring tokens.
struct KvShape {
  std::size_t kv_heads = 0;
  std::size_t head_dim = 0;
  std::size_t page_tokens = 0;  // power of two, at least 16

  std::size_t half_bytes() const { return kv_heads * head_dim * page_tokens * sizeof(std::uint16_t); }
  std::size_t layer_bytes() const { return 2 * half_bytes(); }
};

// Rounds one token's K and V to F16 into slot `slot` of a page's layer chunk.
void WriteKv(const KvShape& shape, const float* k /* [kv_heads][head_dim] */, const float* v /* likewise */,
             std::size_t slot, std::byte* layer_chunk);

// Causal softmax attention with grouped KV heads. Query t stands at position start + t and sees keys 0..start + t, all
// read from the pages (those of the call's own tokens too: they must be written first).
struct AttentionInputs {
  const float* q = nullptr;  // [tokens][heads][head_dim]
  std::size_t tokens = 0;
  std::size_t start = 0;
  std::size_t heads = 0;  // a multiple of kv.kv_heads
  KvShape kv;
  std::span<const std::byte* const> pages;  // page i: this layer's chunk of tokens [i * page_tokens, ...)
  float* out = nullptr;                     // [tokens][heads][head_dim]

  std::size_t group() const { return heads / kv.kv_heads; }
  // The unit of work: (kv head, token, query head within the group), in that order.
  std::size_t rows() const { return tokens * heads; }
};
std::size_t AttentionScratchFloats(std::size_t head_dim);
void Attention(const AttentionInputs& in, RowRange rows, float* scratch /* [AttentionScratchFloats(head_dim)] */);

// "AVX2", "SSE4", ...: the target in use, for reports.
std::string_view TargetName();

}  // namespace kvist::kernels
