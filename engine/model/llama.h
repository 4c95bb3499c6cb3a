// The "llama" architecture: RMSNorm, rotary attention with grouped KV heads, SiLU-gated feed-forward.
// See Model for the contract.
#pragma once

#include <memory>
#include <vector>

#include "engine/model/llama_config.h"
#include "engine/model/llama_weights.h"
#include "engine/model/model.h"
#include "kernels/cpu/thread_pool.h"

namespace kvist::engine {

class LlamaModel final : public Model {
 public:
  // Tokens computed together. Large enough that dequantising weights is a small part of the work, small enough that
  // the activations (about 10 KiB a token for a model of 576 hidden) stay near the cores.
  static constexpr std::size_t kChunkTokens = 256;

  static absl::StatusOr<std::unique_ptr<Model>> Load(std::shared_ptr<const GgufFile> file, const ModelOptions& options);

  const ModelConfig& config() const override { return config_.model; }
  KvLayout kv_layout(std::size_t page_tokens) const override;
  absl::Status Forward(std::span<const TokenId> tokens, std::size_t start, KvPages& kv,
                       std::span<float> logits) override;

 private:
  // One Forward's chunk: tokens at positions [start, start + tokens.size()).
  struct Chunk {
    std::span<const TokenId> tokens;
    std::size_t start;
    std::size_t page_tokens;
    KvPages& kv;
    bool want_logits;  // of the last token
  };

  LlamaModel(std::shared_ptr<const GgufFile> file, LlamaConfig config, LlamaWeights weights, std::size_t threads);

  absl::Status Check(std::span<const TokenId> tokens, std::size_t start, const KvPages& kv,
                     std::span<const float> logits) const;
  void RunChunk(const Chunk& chunk);
  void Embed(const Chunk& chunk);
  void Angles(const Chunk& chunk);
  void ProjectQkv(const LlamaLayer& layer, std::size_t tokens);
  void RotateAndStore(const Chunk& chunk, std::size_t layer);
  void Attend(const Chunk& chunk, std::size_t layer);
  void FeedForward(const LlamaLayer& layer, float* x, std::size_t tokens);
  void Logits(std::size_t tokens, std::span<float> logits);

  void Norm(const float* x, const std::vector<float>& weight, std::size_t tokens);
  // x += w * input
  void AddProduct(const kernels::Matrix& w, const float* input, std::size_t tokens, float* x);
  // Runs on every worker, or here alone where the work is too little to share.
  void ForTokens(std::size_t tokens, absl::FunctionRef<void(std::size_t token)> work);
  kernels::KvShape Shape(std::size_t page_tokens) const;

  std::shared_ptr<const GgufFile> file_;  // the weights' mapping
  LlamaConfig config_;
  LlamaWeights weights_;
  kernels::ThreadPool pool_;

  // Scratch, [kChunkTokens][...] each.
  std::vector<float> x_;                               // [hidden], the residual stream
  std::vector<float> normed_;                          // [hidden]
  std::vector<float> product_;                         // [hidden]
  std::vector<float> q_;                               // [heads][head_dim]
  std::vector<float> k_;                               // [kv_heads][head_dim]
  std::vector<float> v_;                               // [kv_heads][head_dim]
  std::vector<float> mixed_;                           // [heads][head_dim], attention's result
  std::vector<float> gate_;                            // [ffn]
  std::vector<float> up_;                              // [ffn]
  std::vector<float> cos_sin_;                         // [rope_dims / 2][2]
  std::vector<std::vector<float>> attention_scratch_;  // one per worker
  std::vector<const std::byte*> layer_pages_;          // this layer's chunk of each page
};

}  // namespace kvist::engine
