// File descriptors, owned, and passed between processes with SCM_RIGHTS.
#pragma once

#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace kvist::protocol {

// The most descriptors one message carries: the arena and the staging area.
inline constexpr std::size_t kMaxDescriptors = 2;

// Owns one descriptor. Move-only; not synchronised.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    if (this != &other) {
      Close();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  ~Descriptor() { Close(); }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  int Release() { return std::exchange(fd_, -1); }
  void Close();

 private:
  int fd_ = -1;
};

// "what: strerror", with the status code that fits `error`.
absl::Status ErrnoStatus(int error, std::string_view what);

// Sends all of `bytes`, the descriptors with the first of them, without blocking: Unavailable if the socket's buffer
// does not take everything, which cannot happen for a first small message.
absl::Status SendWithDescriptors(int socket, std::span<const char> bytes, std::span<const int> descriptors);

// One non-blocking read that also collects descriptors (close-on-exec). 0 bytes: the peer closed.
absl::StatusOr<std::size_t> ReceiveWithDescriptors(int socket, std::span<char> buffer,
                                                   std::vector<Descriptor>* received);

}  // namespace kvist::protocol
