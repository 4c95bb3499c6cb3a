// Writes GGUF files for tests: well-formed by default, with ways to get each thing wrong. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "kernels/tensor_type.h"

namespace kvist::engine {

class GgufWriter {
 public:
  explicit GgufWriter(std::uint32_t version = 3, std::size_t alignment = 32)
      : version_(version), alignment_(alignment) {}

  // Metadata, in the order of the calls. Alignment is written by Build if it is not 32.
  void AddU32(std::string_view key, std::uint32_t value);
  void AddF32(std::string_view key, float value);
  void AddBool(std::string_view key, bool value);
  void AddString(std::string_view key, std::string_view value);
  void AddStrings(std::string_view key, const std::vector<std::string>& values);
  void AddI32s(std::string_view key, const std::vector<std::int32_t>& values);
  // Any type number and any value bytes, as they are.
  void AddRaw(std::string_view key, std::uint32_t type, std::string_view bytes);

  // `ggml_type` may be any number; `data` as it is. Offsets follow on, aligned.
  void AddTensor(std::string_view name, const std::vector<std::uint64_t>& dims, std::uint32_t ggml_type,
                 std::string data);
  // As the last tensor said, but with this offset.
  void OverrideOffset(std::uint64_t offset);

  std::string Build() const;
  // Bytes before the tensor data: header, metadata and tensor records.
  std::size_t HeaderBytes() const;

 private:
  struct Tensor {
    std::string name;
    std::vector<std::uint64_t> dims;
    std::uint32_t type = 0;
    std::string data;
    std::uint64_t offset = 0;
  };
  std::string Header() const;

  std::uint32_t version_;
  std::size_t alignment_;
  std::uint64_t metadata_count_ = 0;
  std::string metadata_;
  std::vector<Tensor> tensors_;
  std::uint64_t data_bytes_ = 0;
};

// The value's little-endian bytes.
template <typename T>
std::string LittleEndian(T value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof(T));
}
// A GGUF string: length, then bytes.
std::string GgufString(std::string_view text);

absl::Status WriteWholeFile(const std::string& path, std::string_view bytes);

}  // namespace kvist::engine
