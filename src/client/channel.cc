#include "src/client/channel.h"

#include <fcntl.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <cerrno>

#include "fmt/format.h"
#include "src/protocol/frame.h"

namespace kvist::client {

namespace asio = boost::asio;
using boost::system::error_code;

void Channel::Canceller::operator()() const {
  if (const auto alive = channel.lock()) alive->PostGiveUp(id);
}

absl::StatusOr<std::shared_ptr<Channel>> Channel::Create(asio::io_context* io, Attachment attachment, OnLost on_lost) {
  protocol::Descriptor duplicate(::fcntl(attachment.socket.get(), F_DUPFD_CLOEXEC, 0));
  if (!duplicate.valid()) return protocol::ErrnoStatus(errno, "keeping the connection open");
  const int fd = attachment.socket.Release();
  // The constructor is private so that every Channel is owned by a shared_ptr.
  std::shared_ptr<Channel> channel(new Channel(io, std::move(attachment), std::move(on_lost)));
  channel->keep_open_ = std::move(duplicate);
  error_code error;
  channel->socket_->assign(asio::local::stream_protocol(), fd, error);
  if (error) return absl::InternalError(fmt::format("socket: {}", error.message()));
  return channel;
}

Channel::Channel(asio::io_context* io, Attachment attachment, OnLost on_lost)
    : io_(io),
      arena_(std::move(attachment.arena)),
      staging_(std::move(attachment.staging)),
      limits_(attachment.hello.limits()),
      on_lost_(std::move(on_lost)) {
  socket_.emplace(*io_);
  timer_.emplace(*io_);
}

void Channel::Start() { ReadHeader(); }

bool Channel::alive() const {
  absl::MutexLock lock(&mutex_);
  return lost_.ok();
}

void Channel::Call(v1::Request request, const CallOptions& options, std::shared_ptr<void> keep, OnReply done) {
  if (options.cancel.stop_requested()) return std::move(done)(absl::CancelledError("cancelled before it was sent"));
  if (options.timeout <= absl::ZeroDuration()) return std::move(done)(absl::DeadlineExceededError("no time was given"));
  std::uint64_t id;
  {
    absl::MutexLock lock(&mutex_);
    id = next_id_++;
  }
  request.set_id(id);
  auto frame = protocol::EncodeFrame(request, limits_.frame_bytes());
  if (!frame.ok()) return std::move(done)(frame.status());

  Pending pending;
  pending.keep = std::move(keep);
  pending.bytes = frame->size();
  pending.deadline = std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(options.timeout);
  pending.done = std::move(done);
  OnReply rejected;
  absl::Status status;
  {
    absl::MutexLock lock(&mutex_);
    if (!lost_.ok()) {
      status = lost_;
    } else if (pending_.size() >= limits_.outstanding_requests() ||
               pending_bytes_ + pending.bytes > limits_.outstanding_bytes()) {
      status = absl::ResourceExhaustedError(
          fmt::format("{} requests of {} bytes are outstanding; the daemon allows {} and {} bytes", pending_.size(),
                      pending_bytes_, limits_.outstanding_requests(), limits_.outstanding_bytes()));
    }
    if (status.ok()) {
      pending_bytes_ += pending.bytes;
      deadlines_.emplace(pending.deadline, id);
      pending_.emplace(id, std::move(pending));
      outbox_.push_back(std::move(*frame));
      ScheduleWrite();
    } else {
      rejected = std::move(pending.done);
    }
  }
  if (rejected) return std::move(rejected)(status);
  if (!options.cancel.stop_possible()) return;
  // Outside the lock: the callback may run right here, and takes it.
  auto on_stop = std::make_unique<StopCallback>(options.cancel, Canceller{weak_from_this(), id});
  absl::MutexLock lock(&mutex_);
  if (const auto it = pending_.find(id); it != pending_.end() && it->second.done) it->second.on_stop.swap(on_stop);
}

void Channel::Post(v1::Request request) {
  absl::MutexLock lock(&mutex_);
  if (!lost_.ok()) return;
  request.set_id(next_id_++);
  auto frame = protocol::EncodeFrame(request, limits_.frame_bytes());
  if (!frame.ok()) return;
  outbox_.push_back(std::move(*frame));
  ScheduleWrite();
}

void Channel::ScheduleWrite() {
  if (write_scheduled_) return;
  write_scheduled_ = true;
  asio::post(*io_, [self = shared_from_this()] { self->Write(); });
}

void Channel::PostGiveUp(std::uint64_t id) {
  absl::MutexLock lock(&mutex_);
  if (!lost_.ok()) return;
  asio::post(*io_, [self = shared_from_this(), id] { self->GiveUp(id, absl::CancelledError("cancelled")); });
}

void Channel::GiveUp(std::uint64_t id, const absl::Status& status) {
  OnReply done;
  std::unique_ptr<StopCallback> on_stop;
  {
    absl::MutexLock lock(&mutex_);
    const auto it = pending_.find(id);
    if (it == pending_.end() || !it->second.done) return;
    done = std::exchange(it->second.done, nullptr);
    on_stop = std::move(it->second.on_stop);
    deadlines_.erase({it->second.deadline, id});
  }
  v1::Request cancel;
  cancel.mutable_cancel()->set_request(id);
  Post(std::move(cancel));
  std::move(done)(status);
}

void Channel::Write() {
  if (!socket_) return;
  ArmTimer();
  {
    absl::MutexLock lock(&mutex_);
    writing_ = std::exchange(outbox_, {});
    if (writing_.empty()) {
      write_scheduled_ = false;
      return;
    }
  }
  std::vector<asio::const_buffer> buffers;
  buffers.reserve(writing_.size());
  for (const std::string& frame : writing_) buffers.push_back(asio::buffer(frame));
  asio::async_write(*socket_, buffers, [self = shared_from_this()](const error_code& error, std::size_t) {
    if (!self->socket_) return;
    // A failed write is not yet the loss: what the daemon said before it closed may still be readable, and the reader
    // finds the end of it.
    if (error) {
      self->writing_.clear();
      return;
    }
    self->Write();
  });
}

void Channel::ReadHeader() {
  if (!socket_) return;
  asio::async_read(*socket_, asio::buffer(header_), [self = shared_from_this()](const error_code& error, std::size_t) {
    if (!self->socket_) return;
    if (error) return self->Lose(absl::UnavailableError(fmt::format("kvistd is gone ({})", error.message())));
    const auto size = protocol::ParseFrameHeader(self->header_, self->limits_.frame_bytes());
    if (!size.ok()) return self->Lose(absl::UnavailableError(std::string(size.status().message())));
    self->ReadBody(*size);
  });
}

void Channel::ReadBody(std::size_t size) {
  body_.resize(size);
  asio::async_read(*socket_, asio::buffer(body_), [self = shared_from_this()](const error_code& error, std::size_t) {
    if (!self->socket_) return;
    if (error) return self->Lose(absl::UnavailableError(fmt::format("kvistd is gone ({})", error.message())));
    self->OnFrame();
    self->ReadHeader();
  });
}

void Channel::OnFrame() {
  v1::Reply reply;
  if (!reply.ParseFromString(body_)) return Lose(absl::UnavailableError("kvistd sent a malformed message"));
  if (reply.id() == 0) {
    return Lose(absl::UnavailableError(fmt::format("kvistd closed the connection: {}", reply.message())));
  }
  Pending pending;
  {
    absl::MutexLock lock(&mutex_);
    auto node = pending_.extract(reply.id());
    if (node.empty()) return;
    pending = std::move(node.mapped());
    pending_bytes_ -= pending.bytes;
    if (pending.done) deadlines_.erase({pending.deadline, reply.id()});
  }
  pending.on_stop.reset();
  if (pending.done) return std::move(pending.done)(std::move(reply));
  if (reply.acquire().lease() != 0) {  // it came too late: nobody will release it
    v1::Request release;
    release.mutable_release_lease()->set_lease(reply.acquire().lease());
    Post(std::move(release));
  }
}

void Channel::ArmTimer() {
  Time earliest;
  {
    absl::MutexLock lock(&mutex_);
    if (deadlines_.empty()) return;
    earliest = deadlines_.begin()->first;
  }
  if (earliest >= armed_ || !timer_) return;
  armed_ = earliest;
  timer_->expires_at(earliest);
  timer_->async_wait([self = shared_from_this()](const error_code& error) {
    if (!error && self->timer_) self->OnTimer();
  });
}

void Channel::OnTimer() {
  armed_ = Time::max();
  const Time now = std::chrono::steady_clock::now();
  while (true) {
    std::uint64_t id;
    {
      absl::MutexLock lock(&mutex_);
      if (deadlines_.empty() || deadlines_.begin()->first > now) break;
      id = deadlines_.begin()->second;
    }
    GiveUp(id, absl::DeadlineExceededError("kvistd did not answer in time"));
  }
  ArmTimer();
}

void Channel::Close(const absl::Status& status) {
  on_lost_ = nullptr;
  Lose(status);
}

void Channel::Lose(const absl::Status& status) {
  absl::flat_hash_map<std::uint64_t, Pending> failed;
  {
    absl::MutexLock lock(&mutex_);
    if (!lost_.ok()) return;
    lost_ = status;
    failed.swap(pending_);
    deadlines_.clear();
    outbox_.clear();
    pending_bytes_ = 0;
  }
  socket_.reset();
  timer_.reset();
  if (on_lost_) std::exchange(on_lost_, nullptr)(status);
  for (auto& [id, pending] : failed) {
    pending.on_stop.reset();
    if (pending.done) std::move(pending.done)(status);
  }
}

}  // namespace kvist::client
