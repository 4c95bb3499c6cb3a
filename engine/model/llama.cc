#include "engine/model/llama.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "absl/memory/memory.h"

namespace kvist::engine {
namespace {

// Fewer tokens than this in an elementwise step are done by the caller: waking the others takes longer.
constexpr std::size_t kTokensWorthSharing = 16;
// Neighbouring tokens' K share cache lines of F16; threads take whole lines.
constexpr std::size_t kTokensPerLine = 32;

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> LlamaModel::Load(std::shared_ptr<const GgufFile> file,
                                                        const ModelOptions& options) {
  absl::StatusOr<LlamaConfig> config = ReadLlamaConfig(*file);
  if (!config.ok()) return config.status();
  absl::StatusOr<LlamaWeights> weights = LoadLlamaWeights(*file, *config);
  if (!weights.ok()) return weights.status();
  // Private constructor: only a checked file makes a model.
  return absl::WrapUnique<Model>(
      new LlamaModel(std::move(file), *std::move(config), *std::move(weights), options.threads));
}

LlamaModel::LlamaModel(std::shared_ptr<const GgufFile> file, LlamaConfig config, LlamaWeights weights,
                       std::size_t threads)
    : file_(std::move(file)), config_(std::move(config)), weights_(std::move(weights)), pool_(threads) {
  const ModelConfig& model = config_.model;
  for (std::vector<float>* wide : {&x_, &normed_, &product_}) wide->resize(kChunkTokens * model.hidden);
  for (std::vector<float>* query : {&q_, &mixed_}) query->resize(kChunkTokens * config_.query_width());
  for (std::vector<float>* kv : {&k_, &v_}) kv->resize(kChunkTokens * config_.kv_width());
  for (std::vector<float>* ffn : {&gate_, &up_}) ffn->resize(kChunkTokens * model.ffn);
  cos_sin_.resize(kChunkTokens * model.rope_dims);
  attention_scratch_.resize(pool_.size());
  for (std::vector<float>& scratch : attention_scratch_)
    scratch.resize(kernels::AttentionScratchFloats(model.head_dim));
}

kernels::KvShape LlamaModel::Shape(std::size_t page_tokens) const {
  return {.kv_heads = config_.model.kv_heads, .head_dim = config_.model.head_dim, .page_tokens = page_tokens};
}

KvLayout LlamaModel::kv_layout(std::size_t page_tokens) const {
  const ModelConfig& model = config_.model;
  return {.layout = fmt::format("full/L{}/H{}/K{}/V{}/f16/T{}/k:h,d,t/v:h,t,d", model.layers, model.kv_heads,
                                model.head_dim, model.head_dim, page_tokens),
          .positional = config_.positional,
          .layers = model.layers,
          .layer_bytes = Shape(page_tokens).layer_bytes()};
}

absl::Status LlamaModel::Check(std::span<const TokenId> tokens, std::size_t start, const KvPages& kv,
                               std::span<const float> logits) const {
  const ModelConfig& model = config_.model;
  const auto invalid = [](std::string message) { return absl::InvalidArgumentError(std::move(message)); };
  if (tokens.empty()) return invalid("no tokens to compute");
  if (!logits.empty() && logits.size() != model.vocab) {
    return invalid(fmt::format("room for {} logits; the vocabulary has {}", logits.size(), model.vocab));
  }
  if (start > model.context || tokens.size() > model.context - start) {
    return invalid(fmt::format("{} tokens from position {} go beyond the model's context of {}", tokens.size(), start,
                               model.context));
  }
  if (!std::has_single_bit(kv.page_tokens) || kv.page_tokens < 16) {
    return invalid(fmt::format("pages of {} tokens; a power of two of at least 16 was expected", kv.page_tokens));
  }
  const std::size_t end = start + tokens.size();
  if (end > kv.capacity_tokens()) {
    return invalid(fmt::format("{} tokens from position {} go beyond the {} KV pages of {} tokens", tokens.size(),
                               start, kv.pages.size(), kv.page_tokens));
  }
  for (std::size_t page = 0; page * kv.page_tokens < end; ++page) {
    const bool written = (page + 1) * kv.page_tokens > start;
    if (kv.pages[page].data == nullptr || (written && kv.pages[page].writable == nullptr)) {
      return invalid(fmt::format("KV page {} {}", page, written ? "is to be written and is read-only" : "has no data"));
    }
  }
  for (const TokenId token : tokens) {
    if (token >= model.vocab) {
      return invalid(fmt::format("token id {} is outside the vocabulary of {}", token, model.vocab));
    }
  }
  return absl::OkStatus();
}

absl::Status LlamaModel::Forward(std::span<const TokenId> tokens, std::size_t start, KvPages& kv,
                                 std::span<float> logits) {
  if (absl::Status status = Check(tokens, start, kv, logits); !status.ok()) return status;
  for (std::size_t done = 0; done < tokens.size();) {
    const std::size_t count = std::min(kChunkTokens, tokens.size() - done);
    const bool last = done + count == tokens.size();
    RunChunk(Chunk{.tokens = tokens.subspan(done, count),
                   .start = start + done,
                   .page_tokens = kv.page_tokens,
                   .kv = kv,
                   .want_logits = last && !logits.empty()});
    if (last && !logits.empty()) Logits(count, logits);
    done += count;
  }
  return absl::OkStatus();
}

void LlamaModel::RunChunk(const Chunk& chunk) {
  const std::size_t hidden = config_.model.hidden;
  Embed(chunk);
  Angles(chunk);
  for (std::size_t l = 0; l < weights_.layers.size(); ++l) {
    const LlamaLayer& layer = weights_.layers[l];
    std::size_t tokens = chunk.tokens.size();
    Norm(x_.data(), layer.attention_norm, tokens);
    ProjectQkv(layer, tokens);
    RotateAndStore(chunk, l);
    float* x = x_.data();
    const float* mixed = mixed_.data();
    const bool final_layer = l + 1 == weights_.layers.size();
    if (final_layer && !chunk.want_logits) return;  // its K and V were all that was wanted
    Attend(chunk, l);
    if (final_layer) {  // only the last token goes on
      x += (tokens - 1) * hidden;
      mixed += (tokens - 1) * config_.query_width();
      tokens = 1;
    }
    AddProduct(layer.attention_out, mixed, tokens, x);
    FeedForward(layer, x, tokens);
  }
}

void LlamaModel::ForTokens(std::size_t tokens, absl::FunctionRef<void(std::size_t token)> work) {
  if (tokens < kTokensWorthSharing) {
    for (std::size_t t = 0; t < tokens; ++t) work(t);
    return;
  }
  pool_.Run([&](std::size_t worker) {
    const kernels::RowRange share = pool_.Share(tokens, kTokensPerLine, worker);
    for (std::size_t t = share.begin; t < share.end; ++t) work(t);
  });
}

void LlamaModel::Embed(const Chunk& chunk) {
  const kernels::Matrix& table = weights_.embedding;
  ForTokens(chunk.tokens.size(), [&](std::size_t t) {
    kernels::Dequantize(table.type, table.data + chunk.tokens[t] * table.row_bytes(), table.cols,
                        x_.data() + t * table.cols);
  });
}

void LlamaModel::Angles(const Chunk& chunk) {
  const std::vector<double>& frequencies = config_.rope_frequencies;
  ForTokens(chunk.tokens.size(), [&](std::size_t t) {
    float* out = cos_sin_.data() + t * 2 * frequencies.size();
    for (std::size_t i = 0; i < frequencies.size(); ++i) {
      const double angle = static_cast<double>(chunk.start + t) * frequencies[i];
      out[2 * i] = static_cast<float>(std::cos(angle));
      out[2 * i + 1] = static_cast<float>(std::sin(angle));
    }
  });
}

void LlamaModel::Norm(const float* x, const std::vector<float>& weight, std::size_t tokens) {
  const std::size_t hidden = config_.model.hidden;
  ForTokens(tokens, [&](std::size_t t) {
    kernels::RmsNorm(x + t * hidden, weight.data(), config_.model.rms_epsilon, hidden, normed_.data() + t * hidden);
  });
}

void LlamaModel::ProjectQkv(const LlamaLayer& layer, std::size_t tokens) {
  pool_.Run([&](std::size_t worker) {
    for (const auto& [w, out] : {std::pair{&layer.q, &q_}, {&layer.k, &k_}, {&layer.v, &v_}}) {
      kernels::MatMul(*w, normed_.data(), tokens, pool_.Share(w->rows, kernels::kMatMulRowBlock, worker), out->data(),
                      w->rows);
    }
  });
}

void LlamaModel::RotateAndStore(const Chunk& chunk, std::size_t layer) {
  const ModelConfig& model = config_.model;
  const kernels::KvShape shape = Shape(chunk.page_tokens);
  const std::size_t pairs = model.rope_dims / 2;
  ForTokens(chunk.tokens.size(), [&](std::size_t t) {
    const float* angles = cos_sin_.data() + t * 2 * pairs;
    float* k = k_.data() + t * config_.kv_width();
    kernels::Rope(q_.data() + t * config_.query_width(), model.heads, model.head_dim, pairs, angles);
    kernels::Rope(k, model.kv_heads, model.head_dim, pairs, angles);
    const std::size_t position = chunk.start + t;
    std::byte* page = chunk.kv.pages[position / chunk.page_tokens].writable;
    kernels::WriteKv(shape, k, v_.data() + t * config_.kv_width(), position % chunk.page_tokens,
                     page + layer * shape.layer_bytes());
  });
}

void LlamaModel::Attend(const Chunk& chunk, std::size_t layer) {
  const kernels::KvShape shape = Shape(chunk.page_tokens);
  const std::size_t end = chunk.start + chunk.tokens.size();
  layer_pages_.clear();
  for (std::size_t page = 0; page * chunk.page_tokens < end; ++page) {
    layer_pages_.push_back(chunk.kv.pages[page].data + layer * shape.layer_bytes());
  }
  const kernels::AttentionInputs in{.q = q_.data(),
                                    .tokens = chunk.tokens.size(),
                                    .start = chunk.start,
                                    .heads = config_.model.heads,
                                    .kv = shape,
                                    .pages = layer_pages_,
                                    .out = mixed_.data()};
  pool_.Run([&](std::size_t worker) {
    kernels::Attention(in, pool_.Share(in.rows(), 1, worker), attention_scratch_[worker].data());
  });
}

void LlamaModel::AddProduct(const kernels::Matrix& w, const float* input, std::size_t tokens, float* x) {
  pool_.Run([&](std::size_t worker) {
    const kernels::RowRange rows = pool_.Share(w.rows, kernels::kMatMulRowBlock, worker);
    kernels::MatMul(w, input, tokens, rows, product_.data(), w.rows);
    for (std::size_t t = 0; t < tokens; ++t) {
      const std::size_t at = t * w.rows + rows.begin;
      kernels::Add(x + at, product_.data() + at, rows.end - rows.begin);
    }
  });
}

void LlamaModel::FeedForward(const LlamaLayer& layer, float* x, std::size_t tokens) {
  Norm(x, layer.ffn_norm, tokens);
  const std::size_t ffn = config_.model.ffn;
  pool_.Run([&](std::size_t worker) {
    const kernels::RowRange rows = pool_.Share(ffn, kernels::kMatMulRowBlock, worker);
    kernels::MatMul(layer.gate, normed_.data(), tokens, rows, gate_.data(), ffn);
    kernels::MatMul(layer.up, normed_.data(), tokens, rows, up_.data(), ffn);
    for (std::size_t t = 0; t < tokens; ++t) {
      const std::size_t at = t * ffn + rows.begin;
      kernels::SiluMul(gate_.data() + at, up_.data() + at, rows.end - rows.begin);
    }
  });
  AddProduct(layer.down, gate_.data(), tokens, x);
}

void LlamaModel::Logits(std::size_t tokens, std::span<float> logits) {
  Norm(x_.data() + (tokens - 1) * config_.model.hidden, weights_.output_norm, 1);
  pool_.Run([&](std::size_t worker) {
    kernels::MatMul(weights_.output, normed_.data(), 1,
                    pool_.Share(weights_.output.rows, kernels::kMatMulRowBlock, worker), logits.data(),
                    weights_.output.rows);
  });
}

}  // namespace kvist::engine
