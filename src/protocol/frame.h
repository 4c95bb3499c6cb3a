// Framing: every message is a 4-byte little-endian length, then that many bytes of one Protobuf message.
// The length is checked against the limit before anything is allocated for it.
// Plain functions; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "google/protobuf/message_lite.h"

namespace kvist::protocol {

inline constexpr std::uint32_t kMinVersion = 1;
inline constexpr std::uint32_t kMaxVersion = 1;

inline constexpr std::size_t kFrameHeaderBytes = 4;

// One frame, header excluded. A prompt of a million tokens is 4 MB of token ids, and a lease on its 65,536 blocks (of
// 16 tokens, the smallest) takes about 2.5 MB of offsets and keys: 8 MiB holds either with room to spare.
inline constexpr std::size_t kMaxFrameBytes = std::size_t{8} << 20;

// Hello and its reply are a few hundred bytes: an unknown peer may not make the other side allocate more.
inline constexpr std::size_t kMaxHelloBytes = 4096;

// InvalidArgument if the message does not fit in `limit`.
absl::StatusOr<std::string> EncodeFrame(const google::protobuf::MessageLite& message,
                                        std::size_t limit = kMaxFrameBytes);

// The body's length; InvalidArgument if it is 0 or beyond `limit`.
absl::StatusOr<std::size_t> ParseFrameHeader(std::span<const std::byte, kFrameHeaderBytes> header,
                                             std::size_t limit = kMaxFrameBytes);

// The status as a reply carries it, and back. A code this build does not know becomes Unknown.
absl::StatusCode StatusCodeFromWire(int code);
absl::Status StatusFromWire(int code, const std::string& message);

// XXH3_64bits: what Commit carries over a payload.
std::uint64_t PayloadChecksum(std::span<const std::byte> payload);

}  // namespace kvist::protocol
