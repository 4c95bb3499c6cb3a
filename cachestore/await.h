// Blocking forms of PrefixStore's asynchronous calls, for callers that have a thread to wait on.
// Not for use inside a completion.
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "absl/synchronization/notification.h"
#include "cachestore/prefix_store.h"

namespace kvist {

// start(done) begins the call; returns what it completes with.
template <typename T, typename Start>
absl::StatusOr<T> Await(Start&& start) {
  struct State {
    absl::Notification notified;
    std::optional<absl::StatusOr<T>> result;
  };
  auto state = std::make_shared<State>();
  std::forward<Start>(start)(Done<T>([state](absl::StatusOr<T> result) {
    state->result.emplace(std::move(result));
    state->notified.Notify();
  }));
  state->notified.WaitForNotification();
  return std::move(*state->result);
}

template <typename Start>
absl::Status AwaitStatus(Start&& start) {
  struct State {
    absl::Notification notified;
    absl::Status result;
  };
  auto state = std::make_shared<State>();
  std::forward<Start>(start)(DoneStatus([state](absl::Status result) {
    state->result = std::move(result);
    state->notified.Notify();
  }));
  state->notified.WaitForNotification();
  return state->result;
}

}  // namespace kvist
