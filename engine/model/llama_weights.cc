#include "engine/model/llama_weights.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_set.h"

namespace kvist::engine {
namespace {

// As many token ids as llama vocabularies come near to; bounds the logits' size.
constexpr std::uint64_t kMaxVocabulary = 1 << 22;

// Takes tensors by name, keeping the first fault and the names taken.
class Taker {
 public:
  explicit Taker(const GgufFile& file) : file_(file) {}

  const absl::Status& status() const { return status_; }
  bool Has(std::string_view name) const { return file_.FindTensor(name) != nullptr; }

  // Null (and the fault kept) unless the tensor is there, of a type Kvist computes with, and of these dimensions.
  const GgufTensor* Take(const std::string& name, const std::vector<std::uint64_t>& dims) {
    if (!status_.ok()) return nullptr;
    const GgufTensor* tensor = file_.FindTensor(name);
    if (tensor == nullptr) {
      return Fail(fmt::format("the model file lacks tensor '{}' ({} was expected)", name, dims));
    }
    const auto type = static_cast<std::uint32_t>(tensor->type);
    const std::optional<kernels::TensorTypeInfo> info = kernels::FindTensorType(type);
    if (!info.has_value()) {
      return Fail(
          fmt::format("tensor '{}' has type {} ({}), which is not supported", name, kernels::GgmlTypeName(type), type));
    }
    // A trailing dimension of 1 is the same shape written out.
    std::vector<std::uint64_t> found = tensor->dims;
    while (found.size() > dims.size() && found.back() == 1) found.pop_back();
    if (found != dims) return Fail(fmt::format("tensor '{}' is {}; {} was expected", name, tensor->dims, dims));
    if (dims[0] % info->block_elements != 0) {
      return Fail(fmt::format("tensor '{}' has rows of {} elements, which are not whole {} blocks of {}", name, dims[0],
                              info->name, info->block_elements));
    }
    const std::uint64_t bytes = tensor->elements() / info->block_elements * info->block_bytes;
    if (tensor->data.size() != bytes) {
      return Fail(fmt::format("tensor '{}' has {} bytes of data; {} were expected", name, tensor->data.size(), bytes));
    }
    taken_.insert(name);
    return tensor;
  }

  kernels::Matrix TakeMatrix(const std::string& name, std::uint64_t cols, std::uint64_t rows) {
    const GgufTensor* tensor = Take(name, {cols, rows});
    if (tensor == nullptr) return {};
    return {.type = tensor->type, .data = tensor->data.data(), .rows = rows, .cols = cols};
  }

  std::vector<float> TakeVector(const std::string& name, std::uint64_t size) {
    const GgufTensor* tensor = Take(name, {size});
    if (tensor == nullptr) return {};
    std::vector<float> values(size);
    kernels::Dequantize(tensor->type, tensor->data.data(), size, values.data());
    return values;
  }

  // A tensor left over (a bias, an expert, a norm of another architecture) would be ignored, and results be wrong.
  absl::Status CheckAllTaken() const {
    for (const GgufTensor& tensor : file_.tensors()) {
      if (taken_.contains(tensor.name) || tensor.name == "rope_freqs.weight") continue;
      // Frequencies written out by old converters; they follow from the metadata.
      if (std::string_view(tensor.name).ends_with(".attn_rot_embd") ||
          std::string_view(tensor.name).ends_with(".rotary_emb.inv_freq")) {
        continue;
      }
      return absl::InvalidArgumentError(fmt::format(
          "the model file has tensor '{}', which Kvist's llama architecture does not compute with", tensor.name));
    }
    return absl::OkStatus();
  }

 private:
  const GgufTensor* Fail(std::string message) {
    status_ = absl::InvalidArgumentError(std::move(message));
    return nullptr;
  }

  const GgufFile& file_;
  absl::Status status_;
  absl::flat_hash_set<std::string> taken_;
};

LlamaLayer TakeLayer(Taker& taker, const LlamaConfig& config, std::uint32_t index) {
  const ModelConfig& model = config.model;
  const auto name = [index](std::string_view part) { return fmt::format("blk.{}.{}.weight", index, part); };
  LlamaLayer layer;
  layer.attention_norm = taker.TakeVector(name("attn_norm"), model.hidden);
  layer.q = taker.TakeMatrix(name("attn_q"), model.hidden, config.query_width());
  layer.k = taker.TakeMatrix(name("attn_k"), model.hidden, config.kv_width());
  layer.v = taker.TakeMatrix(name("attn_v"), model.hidden, config.kv_width());
  layer.attention_out = taker.TakeMatrix(name("attn_output"), config.query_width(), model.hidden);
  layer.ffn_norm = taker.TakeVector(name("ffn_norm"), model.hidden);
  layer.gate = taker.TakeMatrix(name("ffn_gate"), model.hidden, model.ffn);
  layer.up = taker.TakeMatrix(name("ffn_up"), model.hidden, model.ffn);
  layer.down = taker.TakeMatrix(name("ffn_down"), model.ffn, model.hidden);
  return layer;
}

}  // namespace

absl::StatusOr<LlamaWeights> LoadLlamaWeights(const GgufFile& file, LlamaConfig& config) {
  ModelConfig& model = config.model;
  Taker taker(file);
  const GgufTensor* embedding = file.FindTensor("token_embd.weight");
  const std::uint64_t vocab = embedding != nullptr && embedding->dims.size() >= 2 ? embedding->dims[1] : 1;
  if (vocab == 0 || vocab > kMaxVocabulary) {
    return absl::InvalidArgumentError(fmt::format(
        "tensor 'token_embd.weight' has {} rows; a vocabulary of 1 to {} tokens is supported", vocab, kMaxVocabulary));
  }
  model.vocab = static_cast<std::uint32_t>(vocab);
  LlamaWeights weights;
  weights.embedding = taker.TakeMatrix("token_embd.weight", model.hidden, vocab);
  weights.output =
      taker.Has("output.weight") ? taker.TakeMatrix("output.weight", model.hidden, vocab) : weights.embedding;
  weights.output_norm = taker.TakeVector("output_norm.weight", model.hidden);
  for (std::uint32_t i = 0; i < model.layers && taker.status().ok(); ++i) {
    weights.layers.push_back(TakeLayer(taker, config, i));
  }
  if (!taker.status().ok()) return taker.status();
  if (absl::Status all = taker.CheckAllTaken(); !all.ok()) return all;
  return weights;
}

}  // namespace kvist::engine
