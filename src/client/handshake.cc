#include "src/client/handshake.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "fmt/format.h"
#include "src/protocol/frame.h"
#include "src/protocol/socket_path.h"

namespace kvist::client {
namespace {

absl::StatusOr<protocol::Descriptor> ConnectSocket(const std::string& path) {
  const auto address = protocol::UnixAddress(path);
  if (!address.ok()) return address.status();
  protocol::Descriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) return protocol::ErrnoStatus(errno, "making a socket");
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof(*address)) == 0) return socket;
  const int error = errno;
  if (error == ENOENT || error == ECONNREFUSED || error == ENOTDIR) {
    return absl::UnavailableError(fmt::format(
        "no kvistd answers at {} ({}): start one with `kvistd --config config/kvistd.toml --set daemon.socket={}`",
        path, error == ECONNREFUSED ? "stale socket" : "no such socket", path));
  }
  if (error == EAGAIN) return absl::UnavailableError(fmt::format("kvistd at {} has too many waiting clients", path));
  const absl::Status status = protocol::ErrnoStatus(error, fmt::format("connecting to kvistd at {}", path));
  if (error == EACCES || error == EPERM) {
    return absl::PermissionDeniedError(
        fmt::format("{}: it serves only the user it runs as, and root", std::string(status.message())));
  }
  return status;
}

// Waits until the socket is readable.
absl::Status WaitReadable(int socket, int stop_fd, absl::Time deadline) {
  while (true) {
    const absl::Duration left = deadline - absl::Now();
    if (left <= absl::ZeroDuration()) return absl::DeadlineExceededError("kvistd did not answer the handshake in time");
    std::array<pollfd, 2> wait = {pollfd{socket, POLLIN, 0}, pollfd{stop_fd, POLLIN, 0}};
    const int timeout_ms = static_cast<int>(std::min<std::int64_t>(absl::ToInt64Milliseconds(left) + 1, 60'000));
    const int ready = ::poll(wait.data(), wait.size(), timeout_ms);
    if (ready < 0 && errno != EINTR) return protocol::ErrnoStatus(errno, "waiting for kvistd");
    if (ready <= 0) continue;
    if (wait[1].revents != 0) return absl::CancelledError("the store is closing");
    if (wait[0].revents != 0) return absl::OkStatus();
  }
}

absl::Status ReceiveExactly(int socket, int stop_fd, absl::Time deadline, std::span<char> buffer,
                            std::vector<protocol::Descriptor>* descriptors) {
  while (!buffer.empty()) {
    if (absl::Status status = WaitReadable(socket, stop_fd, deadline); !status.ok()) return status;
    const auto got = protocol::ReceiveWithDescriptors(socket, buffer, descriptors);
    if (!got.ok()) return got.status();
    if (*got == 0) return absl::UnavailableError("kvistd closed the connection during the handshake");
    buffer = buffer.subspan(*got);
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::Reply> ReceiveHello(int socket, int stop_fd, absl::Time deadline,
                                       std::vector<protocol::Descriptor>* descriptors) {
  std::array<char, protocol::kFrameHeaderBytes> header;
  if (absl::Status status = ReceiveExactly(socket, stop_fd, deadline, header, descriptors); !status.ok()) return status;
  const auto size = protocol::ParseFrameHeader(std::as_bytes(std::span(header)), protocol::kMaxHelloBytes);
  if (!size.ok()) return absl::UnavailableError(fmt::format("not a kvistd: {}", std::string(size.status().message())));
  std::string body(*size, '\0');
  if (absl::Status status = ReceiveExactly(socket, stop_fd, deadline, body, descriptors); !status.ok()) return status;
  v1::Reply reply;
  if (!reply.ParseFromString(body)) return absl::UnavailableError("not a kvistd: its reply is no Kvist message");
  return reply;
}

absl::Status MapMemory(const std::vector<protocol::Descriptor>& descriptors, Attachment* attachment) {
  const v1::HelloReply& hello = attachment->hello;
  const std::size_t expected = hello.staging_bytes() > 0 ? 2 : 1;
  if (descriptors.size() != expected) {
    return absl::InternalError(fmt::format("kvistd sent {} descriptors instead of {}", descriptors.size(), expected));
  }
  auto arena =
      protocol::Mapping::Create(descriptors[0].get(), hello.arena_bytes(), protocol::Mapping::Access::kReadOnly);
  if (!arena.ok()) return arena.status();
  attachment->arena = std::make_shared<const protocol::Mapping>(std::move(*arena));
  if (expected == 2) {
    auto staging =
        protocol::Mapping::Create(descriptors[1].get(), hello.staging_bytes(), protocol::Mapping::Access::kReadWrite);
    if (!staging.ok()) return staging.status();
    attachment->staging = std::make_shared<StagingArea>(std::move(*staging));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Attachment> Attach(const RemoteStoreOptions& options, int stop_fd) {
  const absl::Time deadline = absl::Now() + options.handshake_timeout;
  auto socket = ConnectSocket(options.socket_path);
  if (!socket.ok()) return socket.status();

  v1::Request request;
  request.set_id(1);
  v1::Hello* hello = request.mutable_hello();
  hello->set_min_version(protocol::kMinVersion);
  hello->set_max_version(protocol::kMaxVersion);
  hello->set_client(options.client_name.substr(0, 64));
  hello->set_staging_bytes(options.staging_bytes);
  hello->set_last_tier(v1::TIER_SHARED);
  const auto frame = protocol::EncodeFrame(request, protocol::kMaxHelloBytes);
  if (!frame.ok()) return frame.status();
  // A daemon that refuses (too many clients) may answer and close before it reads: its answer says more than EPIPE.
  const absl::Status sent = protocol::SendWithDescriptors(socket->get(), *frame, {});

  std::vector<protocol::Descriptor> descriptors;
  auto reply = ReceiveHello(socket->get(), stop_fd, deadline, &descriptors);
  if (!reply.ok()) return sent.ok() ? reply.status() : sent;
  if (reply->code() != v1::OK) return protocol::StatusFromWire(reply->code(), reply->message());
  if (!reply->has_hello() || reply->hello().version() < protocol::kMinVersion ||
      reply->hello().version() > protocol::kMaxVersion) {
    return absl::FailedPreconditionError("kvistd answered the handshake with a version this client does not speak");
  }
  Attachment attachment;
  attachment.socket = std::move(*socket);
  attachment.hello = std::move(*reply->mutable_hello());
  if (absl::Status status = MapMemory(descriptors, &attachment); !status.ok()) return status;
  return attachment;
}

}  // namespace kvist::client
