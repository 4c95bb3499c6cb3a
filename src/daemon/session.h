// Session: the transport of one client's connection: handshake, framing, the outgoing queue, the end.
//
//   greeting -> serving -> ended -> closed
//
// "Ended" (a fault of the client, a queue it does not read, or the daemon's stop) means: no further service, the
// socket's sending side shut. If the client still holds leases, the session then waits for it to close its own end:
// until it does, it may still be reading leased memory, which must therefore not be reused. PIDs play no part.
//
// Thread safety: Start, Drain and Close from any thread; everything runs on the socket's strand.
#pragma once

#include <array>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "src/daemon/dispatcher.h"
#include "src/daemon/session_context.h"
#include "src/protocol/kvist.pb.h"

namespace kvist::daemon {

class Session : public std::enable_shared_from_this<Session> {
 public:
  using Socket = boost::asio::local::stream_protocol::socket;

  // `on_idle` runs (on the strand) once a drained session has nothing left to do; `on_closed` at its end.
  struct Callbacks {
    std::function<void()> on_idle;
    std::function<void()> on_closed;
  };

  // The socket's executor must be a strand.
  Session(std::shared_ptr<SessionContext> context, Socket socket, std::uint64_t number, Callbacks callbacks);
  ~Session();

  void Start();
  // Answers what is under way and refuses what comes; then ends. Leases stay until Close.
  void Drain();
  void Close();

 private:
  enum class State { kGreeting, kServing, kEnded, kClosed };

  bool AdmitPeer();
  void ReadHeader();
  void ReadBody(std::size_t size);
  void OnFrame();
  absl::Status Greet(const v1::Request& request);
  void Send(const v1::Reply& reply);
  void Write();
  void Fail(const absl::Status& status);
  void End();
  void DiscardUntilClosed();
  void DoClose();
  void CheckIdle();

  const std::shared_ptr<SessionContext> context_;
  Socket socket_;
  boost::asio::steady_timer timer_;  // the handshake's, then the last words' of a failed session
  const std::uint64_t number_;       // for the log
  Callbacks callbacks_;
  State state_ = State::kGreeting;
  bool draining_ = false;
  bool failing_ = false;  // ends once the outgoing queue is written
  std::shared_ptr<Dispatcher> dispatcher_;
  std::string client_ = "unknown";
  std::uint64_t staging_bytes_ = 0;
  std::array<std::byte, 4> header_;
  std::string body_;
  std::deque<std::string> outgoing_;
  std::size_t outgoing_bytes_ = 0;
  bool writing_ = false;
  std::array<char, 512> discarded_;
};

}  // namespace kvist::daemon
