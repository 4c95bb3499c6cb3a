// Channel: one live connection to kvistd, from handshake to loss. Never reconnects: RemoteStore makes a new one.
//
// Requests go out in order of Call and Post; replies come back in any order and are matched by id. A request given up
// on (timeout, cancel) completes at once but keeps its place, and its staging slot, until the daemon's reply arrives:
// the daemon may still be reading the slot.
//
// Thread safety: Call, Post, alive from any thread; Start and Close on the io_context's thread. Completions run on
// that thread, or inside Call when the request never went out; no lock is held then.
// The daemon keeps this connection's leases until the socket is closed by us, and the socket stays open as long as the
// Channel lives: whoever holds a lease holds the Channel.
#pragma once

#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "cachestore/prefix_store.h"
#include "src/client/handshake.h"

namespace kvist::client {

class Channel : public std::enable_shared_from_this<Channel> {
 public:
  using OnReply = absl::AnyInvocable<void(absl::StatusOr<v1::Reply>) &&>;
  using OnLost = absl::AnyInvocable<void(absl::Status) &&>;

  static absl::StatusOr<std::shared_ptr<Channel>> Create(boost::asio::io_context* io, Attachment attachment,
                                                         OnLost on_lost);
  ~Channel() = default;

  void Start();
  // Fails everything outstanding with `status`; OnLost is not called.
  void Close(const absl::Status& status);

  bool alive() const;
  const std::shared_ptr<const protocol::Mapping>& arena() const { return arena_; }
  const std::shared_ptr<StagingArea>& staging() const { return staging_; }

  // Sends a request (its id is set here) and completes with the reply, whose code may be an error. `keep` lives until
  // the daemon has answered.
  void Call(v1::Request request, const CallOptions& options, std::shared_ptr<void> keep, OnReply done);

  // Sends a one-way message; nothing happens if the connection is gone.
  void Post(v1::Request request);

 private:
  using Time = std::chrono::steady_clock::time_point;
  struct Canceller {
    std::weak_ptr<Channel> channel;
    std::uint64_t id;
    void operator()() const;
  };
  using StopCallback = std::stop_callback<Canceller>;
  struct Pending {
    OnReply done;  // null once given up on
    std::shared_ptr<void> keep;
    std::unique_ptr<StopCallback> on_stop;
    std::size_t bytes = 0;
    Time deadline;
  };

  Channel(boost::asio::io_context* io, Attachment attachment, OnLost on_lost);

  absl::Status Enqueue(std::uint64_t id, std::string frame, Pending pending);
  void ScheduleWrite() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void GiveUp(std::uint64_t id, const absl::Status& status);
  void PostGiveUp(std::uint64_t id);

  // On the io thread.
  void Write();
  void ReadHeader();
  void ReadBody(std::size_t size);
  void OnFrame();
  void ArmTimer();
  void OnTimer();
  void Lose(const absl::Status& status);

  boost::asio::io_context* const io_;
  const std::shared_ptr<const protocol::Mapping> arena_;
  const std::shared_ptr<StagingArea> staging_;
  const v1::Limits limits_;
  protocol::Descriptor keep_open_;  // a duplicate of the socket: see the top

  // Touched only on the io thread, and emptied there: they must not outlive the io_context.
  std::optional<boost::asio::local::stream_protocol::socket> socket_;
  std::optional<boost::asio::steady_timer> timer_;
  OnLost on_lost_;
  Time armed_ = Time::max();
  std::array<std::byte, 4> header_;
  std::string body_;
  std::vector<std::string> writing_;

  mutable absl::Mutex mutex_;
  absl::Status lost_ ABSL_GUARDED_BY(mutex_);          // OK while alive
  std::uint64_t next_id_ ABSL_GUARDED_BY(mutex_) = 2;  // 1 was Hello
  absl::flat_hash_map<std::uint64_t, Pending> pending_ ABSL_GUARDED_BY(mutex_);
  std::set<std::pair<Time, std::uint64_t>> deadlines_ ABSL_GUARDED_BY(mutex_);
  std::size_t pending_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<std::string> outbox_ ABSL_GUARDED_BY(mutex_);
  bool write_scheduled_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace kvist::client
