#include "tests/src/testing/raw_client.h"

#include <poll.h>
#include <sys/socket.h>

#include "absl/time/clock.h"
#include "src/protocol/frame.h"
#include "src/protocol/socket_path.h"

namespace kvist::testing {

RawClient::RawClient(const std::string& socket_path) {
  const auto address = protocol::UnixAddress(socket_path);
  protocol::Descriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (address.ok() && ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof(*address)) == 0) {
    socket_ = std::move(socket);
  }
}

bool RawClient::SendBytes(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
  return true;
}

bool RawClient::SendRequest(const v1::Request& request) {
  const auto frame = protocol::EncodeFrame(request);
  return frame.ok() && SendBytes(*frame);
}

bool RawClient::SendHello(std::uint64_t staging_bytes) {
  v1::Request request;
  request.set_id(1);
  request.mutable_hello()->set_min_version(protocol::kMinVersion);
  request.mutable_hello()->set_max_version(protocol::kMaxVersion);
  request.mutable_hello()->set_client("raw");
  request.mutable_hello()->set_staging_bytes(staging_bytes);
  return SendRequest(request);
}

bool RawClient::ReadExactly(char* to, std::size_t bytes, absl::Time deadline) {
  while (bytes > 0) {
    pollfd wait{fd(), POLLIN, 0};
    const auto left = absl::ToInt64Milliseconds(deadline - absl::Now());
    if (left <= 0 || ::poll(&wait, 1, static_cast<int>(left)) <= 0) return false;
    const auto got = protocol::ReceiveWithDescriptors(fd(), std::span(to, bytes), &descriptors_);
    if (!got.ok() || *got == 0) return false;
    to += *got;
    bytes -= *got;
  }
  return true;
}

std::optional<v1::Reply> RawClient::Read(absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  std::array<std::byte, protocol::kFrameHeaderBytes> header;
  if (!ReadExactly(reinterpret_cast<char*>(header.data()), header.size(), deadline)) return std::nullopt;
  const auto size = protocol::ParseFrameHeader(header);
  if (!size.ok()) return std::nullopt;
  std::string body(*size, '\0');
  v1::Reply reply;
  if (!ReadExactly(body.data(), body.size(), deadline) || !reply.ParseFromString(body)) return std::nullopt;
  return reply;
}

bool RawClient::WaitClosed(absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  char buffer[4096];
  while (true) {
    pollfd wait{fd(), POLLIN, 0};
    const auto left = absl::ToInt64Milliseconds(deadline - absl::Now());
    if (left <= 0 || ::poll(&wait, 1, static_cast<int>(left)) <= 0) return false;
    const ssize_t got = ::recv(fd(), buffer, sizeof(buffer), 0);
    if (got <= 0) return true;
  }
}

}  // namespace kvist::testing
