#include "engine/model/llama_config.h"

#include <fmt/format.h>

#include <cmath>
#include <optional>
#include <string>
#include <string_view>

#include "kernels/ops.h"

namespace kvist::engine {
namespace {

// Bounds on what a file may claim: far beyond any llama model, small enough that products stay within 64 bits and
// scratch within reason.
constexpr std::uint64_t kMaxLayers = 4096;  // NamespaceSpec's limit
constexpr std::uint64_t kMaxWidth = 1 << 20;
constexpr std::uint64_t kMaxHeadDim = 1024;
constexpr std::uint64_t kMaxContext = 1 << 24;

absl::Status Invalid(std::string message) { return absl::InvalidArgumentError(std::move(message)); }

// Metadata under "llama.", collecting the first fault so that the reading code stays flat.
class Reader {
 public:
  explicit Reader(const GgufFile& file) : file_(file) {}

  const absl::Status& status() const { return status_; }
  void Fail(std::string message) {
    if (status_.ok()) status_ = Invalid(std::move(message));
  }

  std::uint32_t Count(std::string_view name, std::uint64_t most, std::optional<std::uint64_t> otherwise = {}) {
    const std::string key = fmt::format("llama.{}", name);
    std::uint64_t value = 0;
    if (file_.Find(key) == nullptr && otherwise.has_value()) {
      value = *otherwise;
    } else if (absl::StatusOr<std::uint64_t> read = file_.U64(key); read.ok()) {
      value = *read;
    } else {
      if (status_.ok())
        status_ = read.status().code() == absl::StatusCode::kNotFound
                      ? Invalid(fmt::format("the model file lacks '{}'", key))
                      : read.status();
      return 0;
    }
    if (value == 0 || value > most)
      Fail(fmt::format("'{}' is {}; a value from 1 to {} was expected", key, value, most));
    return static_cast<std::uint32_t>(value);
  }

  double Real(std::string_view name, double otherwise) {
    const std::string key = fmt::format("llama.{}", name);
    if (file_.Find(key) == nullptr) return otherwise;
    absl::StatusOr<double> value = file_.F64(key);
    if (!value.ok()) {
      if (status_.ok()) status_ = value.status();
      return otherwise;
    }
    if (!std::isfinite(*value) || *value <= 0)
      Fail(fmt::format("'{}' is {}; a positive number was expected", key, *value));
    return *value;
  }

  // Features of other llama-like models that would silently change results if ignored.
  void Refuse(std::string_view name, std::string_view what) {
    const std::string key = fmt::format("llama.{}", name);
    if (absl::StatusOr<std::uint64_t> value = file_.U64(key); value.ok() && *value != 0) {
      Fail(fmt::format("'{}' is {}: {} is not supported", key, *value, what));
    }
  }

 private:
  const GgufFile& file_;
  absl::Status status_;
};

void ReadShape(const GgufFile& file, Reader& reader, ModelConfig& model) {
  model.layers = reader.Count("block_count", kMaxLayers);
  model.hidden = reader.Count("embedding_length", kMaxWidth);
  model.heads = reader.Count("attention.head_count", kMaxWidth);
  model.kv_heads = reader.Count("attention.head_count_kv", kMaxWidth, model.heads);
  model.ffn = reader.Count("feed_forward_length", kMaxWidth);
  model.context = reader.Count("context_length", kMaxContext);
  reader.Refuse("expert_count", "a mixture of experts");
  if (!reader.status().ok()) return;
  if (model.heads % model.kv_heads != 0) {
    reader.Fail(fmt::format("'llama.attention.head_count' is {}, which is not a multiple of head_count_kv, {}",
                            model.heads, model.kv_heads));
  }
  const bool explicit_dim = file.Find("llama.attention.key_length") != nullptr;
  if (!explicit_dim && model.hidden % model.heads != 0) {
    reader.Fail(fmt::format("'llama.embedding_length' is {}, which is not a multiple of the {} heads", model.hidden,
                            model.heads));
  }
  model.head_dim = reader.Count("attention.key_length", kMaxHeadDim, model.hidden / model.heads);
  const std::uint32_t value_dim = reader.Count("attention.value_length", kMaxHeadDim, model.head_dim);
  if (value_dim != model.head_dim) {
    reader.Fail(fmt::format("'llama.attention.value_length' is {} and key_length is {}; equal ones are supported",
                            value_dim, model.head_dim));
  }
  const std::uint64_t query_width = std::uint64_t{model.heads} * model.head_dim;
  for (const auto& [what, width] : {std::pair<std::string_view, std::uint64_t>{"embedding_length", model.hidden},
                                    {"feed_forward_length", model.ffn},
                                    {"attention.head_count times the head size", query_width}}) {
    if (width % kernels::kColumnMultiple != 0 || width > kMaxWidth) {
      reader.Fail(fmt::format("'llama.{}' is {}; a multiple of {} up to {} is supported", what, width,
                              kernels::kColumnMultiple, kMaxWidth));
    }
  }
}

absl::StatusOr<std::vector<float>> ReadFactors(const GgufFile& file, std::size_t pairs) {
  const GgufTensor* tensor = file.FindTensor("rope_freqs.weight");
  if (tensor == nullptr) return std::vector<float>();
  if (tensor->type != kernels::TensorType::kF32 || tensor->dims != std::vector<std::uint64_t>{pairs} ||
      tensor->data.size() != pairs * sizeof(float)) {
    return Invalid(fmt::format("tensor 'rope_freqs.weight' is {} of {} elements; F32 of {} was expected",
                               kernels::InfoOf(tensor->type).name, tensor->elements(), pairs));
  }
  std::vector<float> factors(pairs);
  kernels::Dequantize(tensor->type, tensor->data.data(), pairs, factors.data());
  for (const float factor : factors) {
    if (!std::isfinite(factor) || factor <= 0) {
      return Invalid(fmt::format("tensor 'rope_freqs.weight' holds {}; positive factors were expected", factor));
    }
  }
  return factors;
}

absl::Status ReadRope(const GgufFile& file, Reader& reader, LlamaConfig& config) {
  ModelConfig& model = config.model;
  model.rope_base = static_cast<float>(reader.Real("rope.freq_base", 10000.0));
  model.rope_dims = reader.Count("rope.dimension_count", model.head_dim, model.head_dim);
  double scale = 1.0;
  if (file.Find("llama.rope.scaling.type") != nullptr) {
    absl::StatusOr<std::string> type = file.String("llama.rope.scaling.type");
    if (!type.ok()) return type.status();
    if (*type == "linear") {
      scale = reader.Real("rope.scaling.factor", 1.0);
    } else if (*type != "none") {
      return Invalid(
          fmt::format("RoPE scaling '{}' is not supported (supported: none, linear, rope_freqs.weight)", *type));
    }
  } else {
    scale = reader.Real("rope.scale_linear", 1.0);  // the older key
  }
  if (!reader.status().ok()) return reader.status();
  if (model.rope_dims % 2 != 0) {
    return Invalid(fmt::format("'llama.rope.dimension_count' is {}; an even number was expected", model.rope_dims));
  }
  absl::StatusOr<std::vector<float>> factors = ReadFactors(file, model.rope_dims / 2);
  if (!factors.ok()) return factors.status();
  for (std::uint32_t i = 0; i < model.rope_dims / 2; ++i) {
    const double exponent = -2.0 * i / model.rope_dims;
    const double factor = factors->empty() ? 1.0 : double{(*factors)[i]};
    config.rope_frequencies.push_back(std::pow(double{model.rope_base}, exponent) / scale / factor);
  }
  config.positional = fmt::format("rope/neighbours/base{}/dims{}/linear{}", model.rope_base, model.rope_dims, scale);
  for (const float factor : *factors) config.positional += fmt::format("/f{}", factor);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<LlamaConfig> ReadLlamaConfig(const GgufFile& file) {
  LlamaConfig config;
  config.model.architecture = "llama";
  Reader reader(file);
  ReadShape(file, reader, config.model);
  if (!reader.status().ok()) return reader.status();
  config.model.rms_epsilon = static_cast<float>(reader.Real("attention.layer_norm_rms_epsilon", 1e-5));
  if (absl::Status rope = ReadRope(file, reader, config); !rope.ok()) return rope;
  return config;
}

}  // namespace kvist::engine
