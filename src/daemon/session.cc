#include "src/daemon/session.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "spdlog/spdlog.h"
#include "src/protocol/descriptor.h"
#include "src/protocol/frame.h"

namespace kvist::daemon {

namespace asio = boost::asio;
using boost::system::error_code;

Session::Session(std::shared_ptr<SessionContext> context, Socket socket, std::uint64_t number, Callbacks callbacks)
    : context_(std::move(context)),
      socket_(std::move(socket)),
      timer_(socket_.get_executor()),
      number_(number),
      callbacks_(std::move(callbacks)) {
  context_->SessionBegins();
}

Session::~Session() {
  if (staging_bytes_ > 0) context_->ReturnStaging(staging_bytes_);
  context_->SessionEnds();
}

void Session::Start() {
  asio::dispatch(socket_.get_executor(), [self = shared_from_this()] {
    if (self->state_ == State::kClosed) return;  // the server stopped in between
    self->dispatcher_ = std::make_shared<Dispatcher>(self->context_, self->socket_.get_executor(),
                                                     [weak = self->weak_from_this()](const v1::Reply& reply) {
                                                       if (const auto session = weak.lock()) session->Send(reply);
                                                     });
    if (!self->AdmitPeer()) return;
    self->timer_.expires_after(absl::ToChronoNanoseconds(self->context_->limits().handshake_timeout));
    self->timer_.async_wait([weak = self->weak_from_this()](const error_code& error) {
      const auto session = weak.lock();
      if (error || session == nullptr || session->state_ != State::kGreeting) return;
      session->Fail(absl::DeadlineExceededError("no complete Hello came in time"));
    });
    self->ReadHeader();
  });
}

// The socket's mode keeps others out already; this holds even where someone loosened it.
bool Session::AdmitPeer() {
  ucred peer{};
  socklen_t length = sizeof(peer);
  if (::getsockopt(socket_.native_handle(), SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) {
    Fail(absl::PermissionDeniedError("the peer's credentials are unknown"));
    return false;
  }
  if (peer.uid != ::geteuid() && peer.uid != 0) {
    Fail(absl::PermissionDeniedError(
        fmt::format("this kvistd serves uid {} and root, not uid {}", ::geteuid(), peer.uid)));
    return false;
  }
  return true;
}

void Session::ReadHeader() {
  if (state_ == State::kEnded || state_ == State::kClosed || failing_) return;
  asio::async_read(socket_, asio::buffer(header_), [self = shared_from_this()](const error_code& error, std::size_t) {
    if (self->state_ == State::kClosed || self->state_ == State::kEnded) return;
    if (error) return self->DoClose();
    const std::size_t limit = self->state_ == State::kGreeting ? protocol::kMaxHelloBytes : protocol::kMaxFrameBytes;
    const auto size = protocol::ParseFrameHeader(self->header_, limit);
    if (!size.ok()) return self->Fail(size.status());
    self->ReadBody(*size);
  });
}

void Session::ReadBody(std::size_t size) {
  body_.resize(size);
  asio::async_read(socket_, asio::buffer(body_), [self = shared_from_this()](const error_code& error, std::size_t) {
    if (self->state_ == State::kClosed || self->state_ == State::kEnded) return;
    if (error) return self->DoClose();
    self->OnFrame();
    // A prompt of a million tokens is rare: don't keep its buffer for the life of the connection.
    if (self->body_.capacity() > (std::size_t{1} << 20)) std::string().swap(self->body_);
    self->ReadHeader();
  });
}

void Session::OnFrame() {
  if (state_ == State::kEnded) return;
  v1::Request request;
  if (!request.ParseFromString(body_)) return Fail(absl::InvalidArgumentError("not a Kvist message"));
  const absl::Status status = state_ == State::kGreeting ? Greet(request) : dispatcher_->Handle(request, body_.size());
  if (!status.ok()) return Fail(status);
  CheckIdle();
}

absl::Status Session::Greet(const v1::Request& request) {
  if (!request.has_hello()) return absl::FailedPreconditionError("the first message must be Hello");
  const v1::Hello& hello = request.hello();
  const std::uint32_t version = std::min(hello.max_version(), protocol::kMaxVersion);
  if (version < std::max(hello.min_version(), protocol::kMinVersion)) {
    return absl::FailedPreconditionError(
        fmt::format("no protocol version in common: this kvistd speaks {} to {}, the client {} to {}",
                    protocol::kMinVersion, protocol::kMaxVersion, hello.min_version(), hello.max_version()));
  }
  v1::Reply reply;
  reply.set_id(request.id());
  v1::HelloReply* answer = reply.mutable_hello();
  answer->set_version(version);
  answer->set_arena_bytes(context_->store().arena_bytes());
  answer->set_server("kvistd 0.1.0");
  answer->set_pid(static_cast<std::uint32_t>(::getpid()));
  const Limits& limits = context_->limits();
  answer->mutable_limits()->set_frame_bytes(protocol::kMaxFrameBytes);
  answer->mutable_limits()->set_outstanding_requests(limits.outstanding_requests);
  answer->mutable_limits()->set_outstanding_bytes(limits.outstanding_bytes);
  answer->mutable_limits()->set_leased_blocks(limits.leased_blocks);

  if (hello.last_tier() > v1::TIER_NVME) dispatcher_->SetLastTier(hello.last_tier());

  std::vector<int> descriptors = {context_->store().arena_fd()};
  protocol::Descriptor staging;
  staging_bytes_ = context_->TakeStaging(hello.staging_bytes());
  if (staging_bytes_ > 0) {
    auto memory = protocol::MakeSealedMemory("kvist-staging", staging_bytes_);
    if (!memory.ok()) return memory.status();
    auto mapping = protocol::Mapping::Create(memory->get(), staging_bytes_, protocol::Mapping::Access::kReadOnly);
    if (!mapping.ok()) return mapping.status();
    dispatcher_->SetStaging(std::move(*mapping));
    staging = std::move(*memory);
    descriptors.push_back(staging.get());
    answer->set_staging_bytes(staging_bytes_);
  }
  const auto frame = protocol::EncodeFrame(reply, protocol::kMaxHelloBytes);
  if (!frame.ok()) return frame.status();
  if (absl::Status status = protocol::SendWithDescriptors(socket_.native_handle(), *frame, descriptors); !status.ok()) {
    return status;
  }
  timer_.cancel();
  state_ = State::kServing;
  client_.clear();
  for (const char c : hello.client().substr(0, 64)) client_ += c >= ' ' && c <= '~' ? c : '?';  // it goes to a log
  spdlog::debug("client {} ({}) connected", number_, client_);
  return absl::OkStatus();
}

void Session::Send(const v1::Reply& reply) {
  if (state_ == State::kEnded || state_ == State::kClosed) return;
  auto frame = protocol::EncodeFrame(reply);
  if (!frame.ok()) {
    v1::Reply too_big;
    too_big.set_id(reply.id());
    too_big.set_code(v1::RESOURCE_EXHAUSTED);
    too_big.set_message("the reply does not fit in a frame: ask for less at a time");
    frame = protocol::EncodeFrame(too_big);
    if (!frame.ok()) return;
  }
  outgoing_bytes_ += frame->size();
  if (outgoing_bytes_ > context_->limits().outgoing_bytes) {
    spdlog::warn("client {} ({}) does not read its replies: cut off", number_, client_);
    return End();
  }
  outgoing_.push_back(std::move(*frame));
  if (!writing_) Write();
}

void Session::Write() {
  writing_ = true;
  asio::async_write(socket_, asio::buffer(outgoing_.front()),
                    [self = shared_from_this()](const error_code& error, std::size_t) {
                      self->writing_ = false;
                      if (self->state_ == State::kClosed || self->state_ == State::kEnded) return;
                      if (error) {  // whoever reads finds the peer gone; after a fault nobody does
                        if (self->failing_) self->End();
                        return;
                      }
                      self->outgoing_bytes_ -= self->outgoing_.front().size();
                      self->outgoing_.pop_front();
                      if (!self->outgoing_.empty()) return self->Write();
                      if (self->failing_) return self->End();
                      self->CheckIdle();
                    });
}

void Session::Fail(const absl::Status& status) {
  if (failing_ || state_ == State::kEnded || state_ == State::kClosed) return;
  spdlog::warn("client {} ({}): {}: connection closed", number_, client_, std::string(status.message()));
  dispatcher_->Drain();
  v1::Reply last;
  last.set_code(static_cast<v1::Code>(status.raw_code()));
  last.set_message(std::string(status.message()));
  failing_ = true;
  Send(last);
  if (state_ == State::kEnded || state_ == State::kClosed) return;
  timer_.expires_after(absl::ToChronoNanoseconds(context_->limits().handshake_timeout));
  timer_.async_wait([weak = weak_from_this()](const error_code& error) {
    const auto session = weak.lock();
    if (!error && session != nullptr) session->End();
  });
}

void Session::End() {
  if (state_ == State::kEnded || state_ == State::kClosed) return;
  state_ = State::kEnded;
  timer_.cancel();
  dispatcher_->End();
  if (draining_ && callbacks_.on_idle) std::exchange(callbacks_.on_idle, nullptr)();
  if (!dispatcher_->holds_leases()) return DoClose();
  error_code ignored;
  socket_.shutdown(Socket::shutdown_send, ignored);
  socket_.cancel(ignored);
  DiscardUntilClosed();
}

void Session::DiscardUntilClosed() {
  socket_.async_read_some(asio::buffer(discarded_), [self = shared_from_this()](const error_code& error, std::size_t) {
    if (self->state_ == State::kClosed) return;
    if (error && error != asio::error::operation_aborted) return self->DoClose();
    self->DiscardUntilClosed();
  });
}

void Session::Drain() {
  asio::dispatch(socket_.get_executor(), [self = shared_from_this()] {
    self->draining_ = true;
    if (self->dispatcher_ != nullptr) self->dispatcher_->Drain();
    if (self->state_ == State::kGreeting) return self->DoClose();
    if (self->state_ == State::kServing) return self->CheckIdle();
    if (self->callbacks_.on_idle) std::exchange(self->callbacks_.on_idle, nullptr)();
  });
}

void Session::CheckIdle() {
  if (draining_ && state_ == State::kServing && dispatcher_->outstanding() == 0 && outgoing_.empty()) End();
}

void Session::Close() {
  asio::dispatch(socket_.get_executor(), [self = shared_from_this()] { self->DoClose(); });
}

void Session::DoClose() {
  if (state_ == State::kClosed) return;
  state_ = State::kClosed;
  timer_.cancel();
  if (dispatcher_ != nullptr) {
    dispatcher_->End();
    dispatcher_->ReleaseLeases();
  }
  error_code ignored;
  socket_.close(ignored);
  spdlog::debug("client {} ({}) gone", number_, client_);
  if (callbacks_.on_idle) std::exchange(callbacks_.on_idle, nullptr)();
  if (callbacks_.on_closed) std::exchange(callbacks_.on_closed, nullptr)();
}

}  // namespace kvist::daemon
