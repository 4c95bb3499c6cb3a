#include "kernels/tensor_type.h"

#include <array>
#include <utility>

namespace kvist::kernels {
namespace {

constexpr std::array<std::pair<TensorType, TensorTypeInfo>, 8> kTypes{{
    {TensorType::kF32, {"F32", 1, 4}},
    {TensorType::kF16, {"F16", 1, 2}},
    {TensorType::kBF16, {"BF16", 1, 2}},
    {TensorType::kQ8_0, {"Q8_0", 32, 34}},
    {TensorType::kQ4_0, {"Q4_0", 32, 18}},
    {TensorType::kQ4_1, {"Q4_1", 32, 20}},
    {TensorType::kQ4_K, {"Q4_K", 256, 144}},
    {TensorType::kQ6_K, {"Q6_K", 256, 210}},
}};

// ggml's numbering, gaps (removed types) empty.
constexpr std::array<std::string_view, 40> kGgmlNames{
    "F32",    "F16",   "Q4_0",  "Q4_1",   "",      "",      "Q5_0",    "Q5_1",   "Q8_0",    "Q8_1",
    "Q2_K",   "Q3_K",  "Q4_K",  "Q5_K",   "Q6_K",  "Q8_K",  "IQ2_XXS", "IQ2_XS", "IQ3_XXS", "IQ1_S",
    "IQ4_NL", "IQ3_S", "IQ2_S", "IQ4_XS", "I8",    "I16",   "I32",     "I64",    "F64",     "IQ1_M",
    "BF16",   "",      "",      "",       "TQ1_0", "TQ2_0", "",        "",       "",        "MXFP4"};

}  // namespace

std::optional<TensorTypeInfo> FindTensorType(std::uint32_t ggml_type) {
  for (const auto& [type, info] : kTypes) {
    if (static_cast<std::uint32_t>(type) == ggml_type) return info;
  }
  return std::nullopt;
}

const TensorTypeInfo& InfoOf(TensorType type) {
  for (const auto& [candidate, info] : kTypes) {
    if (candidate == type) return info;
  }
  return kTypes[0].second;  // unreachable: every enumerator stands above
}

std::string_view GgmlTypeName(std::uint32_t ggml_type) {
  if (ggml_type < kGgmlNames.size() && !kGgmlNames[ggml_type].empty()) return kGgmlNames[ggml_type];
  return "unknown type";
}

}  // namespace kvist::kernels
