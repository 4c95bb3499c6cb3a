// GGUF files (versions 2 and 3; https://github.com/ggml-org/ggml/blob/master/docs/gguf.md), memory-mapped read-only.
// Every length and offset in the file is untrusted: each is checked against the file's size before use, and a bad one
// is an InvalidArgument that names the fault and where it stands. Immutable after Open; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cachestore/key/digest.h"
#include "kernels/tensor_type.h"

namespace kvist::engine {

struct GgufArray;
// Integers of every width are widened; a reader asks for what it needs and gets a range check.
using GgufValue = std::variant<std::uint64_t, std::int64_t, double, bool, std::string, std::shared_ptr<GgufArray>>;
struct GgufArray {
  // One of these is used, by element type; nested arrays as values.
  std::vector<std::string> strings;
  std::vector<std::int64_t> integers;  // also bools; u64 above int64 range is refused
  std::vector<double> floats;
  std::vector<GgufValue> nested;
  std::size_t size = 0;
};

struct GgufTensor {
  std::string name;
  kernels::TensorType type;
  std::vector<std::uint64_t> dims;  // dims[0] is the contiguous one: a matrix of R rows of C columns is {C, R}
  std::span<const std::byte> data;  // inside the mapping
  std::uint64_t elements() const;
};

class GgufFile {
 public:
  static absl::StatusOr<std::unique_ptr<GgufFile>> Open(const std::string& path);
  ~GgufFile();
  GgufFile(const GgufFile&) = delete;
  GgufFile& operator=(const GgufFile&) = delete;

  const std::string& path() const { return path_; }
  std::uint32_t version() const { return version_; }

  const GgufValue* Find(std::string_view key) const;  // null if absent
  // Typed getters: NotFound (absent) or InvalidArgument (other type, out of range), naming the key.
  absl::StatusOr<std::uint64_t> U64(std::string_view key) const;
  absl::StatusOr<double> F64(std::string_view key) const;
  absl::StatusOr<std::string> String(std::string_view key) const;
  absl::StatusOr<bool> Bool(std::string_view key) const;
  absl::StatusOr<std::shared_ptr<const GgufArray>> Array(std::string_view key) const;

  const std::vector<GgufTensor>& tensors() const { return tensors_; }
  const GgufTensor* FindTensor(std::string_view name) const;  // null if absent

  // XXH3_128 of the whole file: the identity of the weights (a name or a size would not notice one altered tensor).
  Digest128 Fingerprint() const;

 private:
  GgufFile() = default;
  friend class GgufParser;

  std::string path_;
  std::uint32_t version_ = 0;
  std::span<const std::byte> mapping_;
  absl::flat_hash_map<std::string, GgufValue> metadata_;
  std::vector<GgufTensor> tensors_;
  absl::flat_hash_map<std::string, std::size_t> tensor_index_;
};

}  // namespace kvist::engine
