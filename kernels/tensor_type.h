// The tensor encodings Kvist computes with, numbered as in GGUF (ggml_type). Pure data; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace kvist::kernels {

enum class TensorType : std::uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ8_0 = 8,
  kQ4_K = 12,
  kQ6_K = 14,
  kBF16 = 30,
};

struct TensorTypeInfo {
  std::string_view name;       // as ggml prints it: "Q4_K"
  std::size_t block_elements;  // elements per quantisation block (1 for floats)
  std::size_t block_bytes;
};

// nullopt for a type Kvist does not compute with.
std::optional<TensorTypeInfo> FindTensorType(std::uint32_t ggml_type);
const TensorTypeInfo& InfoOf(TensorType type);
// Name of any ggml type, known to Kvist or not, for error messages ("Q3_K", "type 77").
std::string_view GgmlTypeName(std::uint32_t ggml_type);

}  // namespace kvist::kernels
