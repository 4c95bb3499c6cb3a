#include "src/daemon/server.h"

#include <sys/socket.h>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "fmt/format.h"
#include "spdlog/spdlog.h"
#include "src/daemon/session.h"
#include "src/protocol/frame.h"
#include "src/protocol/kvist.pb.h"

namespace kvist::daemon {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

// After a failed accept (out of descriptors, most likely) clients wait this long in the backlog.
constexpr std::chrono::milliseconds kAcceptPause{100};

class UnixServer final : public Server {
 public:
  UnixServer(LocalStore* store, Endpoint* endpoint, const ServerOptions& options)
      : options_(options),
        endpoint_(endpoint),
        context_(std::make_shared<SessionContext>(store, options.limits)),
        work_(asio::make_work_guard(io_)),
        acceptor_(accept_strand_),
        pause_(accept_strand_) {}

  ~UnixServer() override { Stop(); }

  absl::Status Start() {
    auto socket = endpoint_->Listen();
    if (!socket.ok()) return socket.status();
    error_code error;
    acceptor_.assign(asio::local::stream_protocol(), socket->get(), error);
    if (error) return absl::InternalError(fmt::format("listening on {}: {}", endpoint_->path(), error.message()));
    socket->Release();
    asio::post(accept_strand_, [this] { Accept(); });
    for (std::size_t i = 0; i < options_.threads; ++i) threads_.emplace_back([this] { io_.run(); });
    return absl::OkStatus();
  }

  void Stop() override {
    {
      absl::MutexLock lock(&mutex_);
      if (stopping_) return;
      stopping_ = true;
    }
    endpoint_->Remove();
    asio::post(accept_strand_, [this] {
      error_code ignored;
      acceptor_.close(ignored);
      pause_.cancel();
    });
    const auto deadline = absl::Now() + options_.drain_timeout;
    for (const auto& session : Sessions()) session->Drain();
    {
      absl::MutexLock lock(&mutex_);
      mutex_.AwaitWithDeadline(absl::Condition(this, &UnixServer::AllIdle), deadline);
    }
    if (!context_->AwaitNoOperations(deadline - absl::Now())) {
      spdlog::warn("work still under way after {}: cancelling it", absl::FormatDuration(options_.drain_timeout));
    }
    // Only now: as long as anything could be written to the arena, every client's leases must hold.
    for (const auto& session : Sessions()) session->Close();
    context_->AwaitNoOperations(absl::InfiniteDuration());
    work_.reset();
    // No socket, timer or operation is left, so that run() returns by itself, everything posted done.
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

  ServerStats stats() const override { return context_->stats(); }

 private:
  struct Entry {
    std::weak_ptr<Session> session;
    bool idle = false;
  };

  bool AllIdle() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    for (const auto& [number, entry] : sessions_) {
      if (!entry.idle) return false;
    }
    return true;
  }

  std::vector<std::shared_ptr<Session>> Sessions() {
    absl::MutexLock lock(&mutex_);
    std::vector<std::shared_ptr<Session>> all;
    for (const auto& [number, entry] : sessions_) {
      if (auto session = entry.session.lock()) all.push_back(std::move(session));
    }
    return all;
  }

  void Accept() {
    if (!acceptor_.is_open()) return;
    acceptor_.async_accept(asio::make_strand(io_), [this](const error_code& error, Session::Socket socket) {
      if (error == asio::error::operation_aborted) return;
      if (error) {
        spdlog::warn("accepting a client: {}", error.message());
        pause_.expires_after(kAcceptPause);
        pause_.async_wait([this](const error_code& cancelled) {
          if (!cancelled) Accept();
        });
        return;
      }
      Admit(std::move(socket));
      Accept();
    });
  }

  void Admit(Session::Socket socket) {
    std::shared_ptr<Session> session;
    {
      absl::MutexLock lock(&mutex_);
      if (stopping_) return;
      if (sessions_.size() < options_.limits.clients) {
        const std::uint64_t number = next_session_++;
        Session::Callbacks callbacks{.on_idle = [this, number] { SetIdle(number); },
                                     .on_closed = [this, number] { Forget(number); }};
        session = std::make_shared<Session>(context_, std::move(socket), number, std::move(callbacks));
        sessions_[number] = {.session = session};
      }
    }
    if (session == nullptr) return Refuse(std::move(socket));
    session->Start();
  }

  void Refuse(Session::Socket socket) {
    v1::Reply reply;
    reply.set_code(v1::RESOURCE_EXHAUSTED);
    reply.set_message(fmt::format("kvistd serves its most, {} clients: raise limits.clients", options_.limits.clients));
    const auto frame = protocol::EncodeFrame(reply);
    if (frame.ok()) (void)protocol::SendWithDescriptors(socket.native_handle(), *frame, {});
  }

  void SetIdle(std::uint64_t number) {
    absl::MutexLock lock(&mutex_);
    if (const auto it = sessions_.find(number); it != sessions_.end()) it->second.idle = true;
  }

  void Forget(std::uint64_t number) {
    absl::MutexLock lock(&mutex_);
    sessions_.erase(number);
  }

  const ServerOptions options_;
  Endpoint* const endpoint_;
  const std::shared_ptr<SessionContext> context_;
  asio::io_context io_;
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  asio::strand<asio::io_context::executor_type> accept_strand_{io_.get_executor()};
  asio::local::stream_protocol::acceptor acceptor_;
  asio::steady_timer pause_;
  std::vector<std::thread> threads_;

  absl::Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::uint64_t next_session_ ABSL_GUARDED_BY(mutex_) = 1;
  absl::flat_hash_map<std::uint64_t, Entry> sessions_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

absl::StatusOr<std::unique_ptr<Server>> Server::Start(LocalStore* store, Endpoint* endpoint,
                                                      const ServerOptions& options) {
  auto server = std::make_unique<UnixServer>(store, endpoint, options);
  if (absl::Status status = server->Start(); !status.ok()) return status;
  return server;
}

}  // namespace kvist::daemon
