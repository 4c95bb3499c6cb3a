#include "tests/engine/model/naive_llama.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "kernels/cpu/reference.h"
#include "kernels/float16.h"

namespace kvist::engine {
namespace {

using Vector = std::vector<double>;

std::vector<float> Values(const GgufFile& file, const std::string& name) {
  const GgufTensor& tensor = *file.FindTensor(name);
  std::vector<float> out(tensor.elements());
  kernels::reference::Dequantize(tensor.type, tensor.data.data(), out.size(), out.data());
  return out;
}

Vector Multiply(const std::vector<float>& w, const Vector& x) {
  Vector y(w.size() / x.size());
  for (std::size_t r = 0; r < y.size(); ++r) {
    for (std::size_t k = 0; k < x.size(); ++k) y[r] += w[r * x.size() + k] * x[k];
  }
  return y;
}

Vector Norm(const std::vector<float>& weight, const Vector& x, double epsilon) {
  double squares = 0;
  for (const double value : x) squares += value * value;
  Vector y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    y[i] = x[i] / std::sqrt(squares / static_cast<double>(x.size()) + epsilon) * weight[i];
  }
  return y;
}

void Rotate(Vector& x, std::size_t head_dim, std::size_t position, double base) {
  for (std::size_t i = 0; i < x.size(); i += 2) {
    const double exponent = -static_cast<double>(i % head_dim) / static_cast<double>(head_dim);
    const double angle = static_cast<double>(position) * std::pow(base, exponent);
    const double a = x[i];
    const double b = x[i + 1];
    x[i] = a * std::cos(angle) - b * std::sin(angle);
    x[i + 1] = a * std::sin(angle) + b * std::cos(angle);
  }
}

// KV passes through F16, as stored.
Vector Rounded(Vector x) {
  for (double& value : x) value = kernels::F16ToF32(kernels::F32ToF16(static_cast<float>(value)));
  return x;
}

Vector Attend(const Vector& q, const std::vector<Vector>& keys, const std::vector<Vector>& values, std::size_t heads,
              std::size_t head_dim) {
  const std::size_t kv_heads = keys[0].size() / head_dim;
  Vector out(q.size());
  for (std::size_t h = 0; h < heads; ++h) {
    const std::size_t from = h * kv_heads / heads * head_dim;
    Vector weights;
    for (const Vector& key : keys) {
      double score = 0;
      for (std::size_t d = 0; d < head_dim; ++d) score += q[h * head_dim + d] * key[from + d];
      weights.push_back(std::exp(score / std::sqrt(static_cast<double>(head_dim))));
    }
    double sum = 0;
    for (const double weight : weights) sum += weight;
    for (std::size_t p = 0; p < keys.size(); ++p) {
      for (std::size_t d = 0; d < head_dim; ++d) out[h * head_dim + d] += weights[p] / sum * values[p][from + d];
    }
  }
  return out;
}

void AddTo(Vector& x, const Vector& y) {
  for (std::size_t i = 0; i < x.size(); ++i) x[i] += y[i];
}

}  // namespace

std::vector<std::vector<double>> NaiveLlamaLogits(const GgufFile& file, std::span<const TokenId> tokens) {
  const std::size_t layers = *file.U64("llama.block_count");
  const std::size_t heads = *file.U64("llama.attention.head_count");
  const std::size_t head_dim = *file.U64("llama.rope.dimension_count");
  const double epsilon = *file.F64("llama.attention.layer_norm_rms_epsilon");
  const double base = *file.F64("llama.rope.freq_base");
  const std::vector<float> embedding = Values(file, "token_embd.weight");
  const std::size_t hidden = *file.U64("llama.embedding_length");
  std::vector<Vector> x;
  for (const TokenId token : tokens) {
    const auto row = embedding.begin() + static_cast<std::ptrdiff_t>(token * hidden);
    x.emplace_back(row, row + static_cast<std::ptrdiff_t>(hidden));
  }
  for (std::size_t l = 0; l < layers; ++l) {
    const auto get = [&](const char* part) { return Values(file, fmt::format("blk.{}.{}.weight", l, part)); };
    std::vector<Vector> keys;
    std::vector<Vector> values;
    for (std::size_t t = 0; t < x.size(); ++t) {
      const Vector normed = Norm(get("attn_norm"), x[t], epsilon);
      Vector q = Multiply(get("attn_q"), normed);
      Vector k = Multiply(get("attn_k"), normed);
      Rotate(q, head_dim, t, base);
      Rotate(k, head_dim, t, base);
      keys.push_back(Rounded(k));
      values.push_back(Rounded(Multiply(get("attn_v"), normed)));
      AddTo(x[t], Multiply(get("attn_output"), Attend(q, keys, values, heads, head_dim)));
      const Vector again = Norm(get("ffn_norm"), x[t], epsilon);
      Vector gate = Multiply(get("ffn_gate"), again);
      const Vector up = Multiply(get("ffn_up"), again);
      for (std::size_t i = 0; i < gate.size(); ++i) gate[i] *= up[i] / (1 + std::exp(-gate[i]));
      AddTo(x[t], Multiply(get("ffn_down"), gate));
    }
  }
  const bool own_output = file.FindTensor("output.weight") != nullptr;
  const std::vector<float> output = own_output ? Values(file, "output.weight") : embedding;
  const std::vector<float> output_norm = Values(file, "output_norm.weight");
  std::vector<Vector> logits;
  for (const Vector& row : x) logits.push_back(Multiply(output, Norm(output_norm, row, epsilon)));
  return logits;
}

}  // namespace kvist::engine
