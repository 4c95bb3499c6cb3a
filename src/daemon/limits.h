// What one client, and all of them together, may take from the daemon. Beyond a limit the answer is ResourceExhausted,
// at once. config/kvistd.toml documents each as limits.NAME.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/time/time.h"

namespace kvist::daemon {

struct Limits {
  std::size_t clients = 256;  // each costs a socket, two descriptors and up to one frame of memory

  // An unknown peer may hold a connection this long without having said Hello.
  absl::Duration handshake_timeout = absl::Seconds(5);

  // Requests of one client that are not answered yet, and the memory their frames take: enough to keep the store busy,
  // little enough that 256 clients cannot exhaust the machine.
  std::size_t outstanding_requests = 1024;
  std::size_t outstanding_bytes = std::size_t{32} << 20;

  // Blocks one client may lease at once (a million tokens in blocks of 64): leased blocks cannot leave DRAM.
  std::size_t leased_blocks = 16384;

  // Replies waiting for a client that does not read; beyond it the client is cut off.
  std::size_t outgoing_bytes = std::size_t{32} << 20;

  // Memory for payloads on their way in: of one client, and of all. What is never touched costs nothing, but all of it
  // can be touched, so all of it counts.
  std::uint64_t staging_per_client = std::uint64_t{256} << 20;
  std::uint64_t staging_total = std::uint64_t{4} << 30;
};

// The smallest token block: bounds how many blocks a prompt can be, before its namespace is known.
inline constexpr std::size_t kMinBlockTokens = 16;

// Blocks one Acquire may lease, so that its reply (under 48 bytes a block) fits in a frame.
inline constexpr std::size_t kMaxBlocksPerAcquire = 131072;

}  // namespace kvist::daemon
