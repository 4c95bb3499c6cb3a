// DeadlinePool: a few threads for calls that may never return (a hard-mounted NFS server that is gone). A call's
// completion runs when the call ends or its time is up, whichever is first; a thread that is stuck is out of use until
// its call returns, and no more threads are made for it. Storage that does not answer is given up for a while
// (FolderHealth): then everything fails at once.
//
// Urgent work goes first, and the rest never takes more than half of the threads.
// Thread safety: any thread. The destructor fails what waits, gives what runs `close_timeout`, then leaves stuck
// threads to themselves: so `work` must own, or share, all that it touches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "cachestore/prefix_store.h"
#include "cachestore/shared/folder_health.h"

namespace kvist {

enum class Urgency : std::uint8_t { kReader, kBackground };

class DeadlinePool {
 public:
  struct Options {
    std::string name;                                 // in messages: "shared folder /mnt/kv"
    std::size_t threads = 8;                          // as many transfers keep a network busy
    std::size_t queue_limit = 4096;                   // calls waiting; beyond it ResourceExhausted
    absl::Duration close_timeout = absl::Seconds(1);  // for calls under way at the end
    FolderHealth::Options health = {};
  };
  struct Counters {
    std::uint64_t timeouts = 0;
    std::size_t stuck = 0;  // threads in calls that were given up
    bool given_up = false;
  };
  using Work = absl::AnyInvocable<absl::Status()>;

  explicit DeadlinePool(const Options& options);
  ~DeadlinePool();
  DeadlinePool(const DeadlinePool&) = delete;
  DeadlinePool& operator=(const DeadlinePool&) = delete;

  // `done` gets what `work` returned, or DeadlineExceeded; Unavailable or ResourceExhausted at once if it is not begun;
  // Cancelled at the end of the pool.
  void Run(Urgency urgency, absl::Duration timeout, Work work, DoneStatus done);

  Counters counters() const;

 private:
  struct State;
  const std::shared_ptr<State> state_;  // shared with the threads, stuck ones too
};

}  // namespace kvist
