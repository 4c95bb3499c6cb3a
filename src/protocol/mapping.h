// Memory shared by descriptor: a mapping of a sealed memfd, and the making of one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "src/protocol/descriptor.h"

namespace kvist::protocol {

// A shared mapping of a whole memfd; unmapped on destruction. Move-only.
class Mapping {
 public:
  enum class Access { kReadOnly, kReadWrite };

  // FailedPrecondition unless `fd` is a memfd sealed against shrinking and at least `bytes` long: a mapping of
  // anything else could vanish under its reader (SIGBUS).
  static absl::StatusOr<Mapping> Create(int fd, std::uint64_t bytes, Access access);

  Mapping() = default;
  Mapping(Mapping&& other) noexcept : memory_(std::exchange(other.memory_, {})) {}
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(memory_, other.memory_);
    return *this;
  }
  ~Mapping();

  std::span<const std::byte> bytes() const { return memory_; }
  std::span<std::byte> writable() const { return memory_; }  // only for kReadWrite

 private:
  explicit Mapping(std::span<std::byte> memory) : memory_(memory) {}
  std::span<std::byte> memory_;
};

// A zeroed memfd of `bytes`, sealed against resizing. Pages cost memory only once touched.
absl::StatusOr<Descriptor> MakeSealedMemory(const std::string& name, std::uint64_t bytes);

}  // namespace kvist::protocol
