// A cursor over untrusted little-endian bytes. Every read is checked against what is left, so no length taken from
// the file is ever trusted. The first failure sticks: later reads return zeros, and status() tells what and where.
// Not thread-safe.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace kvist::engine {

static_assert(std::endian::native == std::endian::little, "GGUF values are read in place: little-endian hosts only");

class GgufReader {
 public:
  explicit GgufReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <typename T>
  T Read(std::string_view what) {
    T value{};
    if (!Need(sizeof(T), what)) return value;
    std::memcpy(&value, bytes_.data() + position_, sizeof(T));
    position_ += sizeof(T);
    return value;
  }

  // A u64 length, then that many bytes; longer than `limit` is a fault. The view lies in the file.
  std::string_view ReadString(std::uint64_t limit, std::string_view what);

  // A fault at byte `at` (default: here). Keeps the first one.
  void Fail(std::string_view fault) { FailAt(position_, fault); }
  void FailAt(std::size_t at, std::string_view fault);

  bool ok() const { return status_.ok(); }
  const absl::Status& status() const { return status_; }
  std::size_t position() const { return position_; }
  std::size_t remaining() const { return bytes_.size() - position_; }

 private:
  bool Need(std::size_t count, std::string_view what);

  std::span<const std::byte> bytes_;
  std::size_t position_ = 0;
  absl::Status status_;
};

}  // namespace kvist::engine
