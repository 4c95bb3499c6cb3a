#include "src/protocol/frame.h"

#include "fmt/format.h"
#include "xxhash.h"

namespace kvist::protocol {

absl::StatusOr<std::string> EncodeFrame(const google::protobuf::MessageLite& message, std::size_t limit) {
  const std::size_t size = message.ByteSizeLong();
  if (size == 0 || size > limit) {
    return absl::InvalidArgumentError(
        fmt::format("message of {} bytes; a frame holds 1 to {} bytes: send fewer tokens at a time", size, limit));
  }
  std::string frame(kFrameHeaderBytes + size, '\0');
  for (std::size_t i = 0; i < kFrameHeaderBytes; ++i) frame[i] = static_cast<char>((size >> (8 * i)) & 0xff);
  if (!message.SerializeToArray(frame.data() + kFrameHeaderBytes, static_cast<int>(size))) {
    return absl::InternalError("message could not be serialised");
  }
  return frame;
}

absl::StatusOr<std::size_t> ParseFrameHeader(std::span<const std::byte, kFrameHeaderBytes> header, std::size_t limit) {
  std::size_t size = 0;
  for (std::size_t i = 0; i < kFrameHeaderBytes; ++i) size |= static_cast<std::size_t>(header[i]) << (8 * i);
  if (size == 0 || size > limit) {
    return absl::InvalidArgumentError(fmt::format("frame announces {} bytes; 1 to {} are allowed", size, limit));
  }
  return size;
}

absl::StatusCode StatusCodeFromWire(int code) {
  return code >= 0 && code <= static_cast<int>(absl::StatusCode::kUnauthenticated) ? static_cast<absl::StatusCode>(code)
                                                                                   : absl::StatusCode::kUnknown;
}

absl::Status StatusFromWire(int code, const std::string& message) {
  return absl::Status(StatusCodeFromWire(code), message);
}

std::uint64_t PayloadChecksum(std::span<const std::byte> payload) {
  return XXH3_64bits(payload.data(), payload.size());
}

}  // namespace kvist::protocol
