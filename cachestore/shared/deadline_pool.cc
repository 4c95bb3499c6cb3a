#include "cachestore/shared/deadline_pool.h"

#include <algorithm>
#include <deque>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/btree_map.h"
#include "absl/synchronization/mutex.h"
#include "cachestore/io/clock.h"
#include "fmt/format.h"
#include "spdlog/spdlog.h"

namespace kvist {
namespace {

// Deadlines are intervals: the wall clock has no say in them.
absl::Duration MonotonicNow() { return SystemClock().Monotonic(); }

}  // namespace

struct DeadlinePool::State {
  struct Call {
    Work work;
    DoneStatus done;
    Urgency urgency = Urgency::kReader;
    absl::Duration due;
    std::uint64_t number = 0;
    bool over = false;     // `done` has been taken
    bool running = false;  // `work` belongs to its thread
  };
  using CallRef = std::shared_ptr<Call>;
  struct Thread {
    std::thread handle;
    CallRef call;  // being run
    bool ended = false;
  };

  explicit State(const Options& with) : options(with), health(with.health) {}

  const Options options;
  mutable absl::Mutex mutex;
  std::deque<CallRef> urgent ABSL_GUARDED_BY(mutex);
  std::deque<CallRef> background ABSL_GUARDED_BY(mutex);
  absl::btree_map<std::pair<absl::Duration, std::uint64_t>, CallRef> deadlines ABSL_GUARDED_BY(mutex);
  std::size_t background_running ABSL_GUARDED_BY(mutex) = 0;
  std::uint64_t next_number ABSL_GUARDED_BY(mutex) = 0;
  std::uint64_t timeouts ABSL_GUARDED_BY(mutex) = 0;
  FolderHealth health ABSL_GUARDED_BY(mutex);
  bool closing ABSL_GUARDED_BY(mutex) = false;
  std::vector<Thread> threads ABSL_GUARDED_BY(mutex);
  std::thread watchdog;  // touched by the owner only

  absl::CondVar work_wake;
  absl::CondVar watchdog_wake;

  CallRef TakeNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  // Takes the call's completion; null if another has.
  DoneStatus TakeDone(Call& call) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  void RunThread(std::size_t index);
  void RunWatchdog();
  bool Quiet() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
};

DeadlinePool::State::CallRef DeadlinePool::State::TakeNext() {
  const auto pop = [](std::deque<CallRef>& queue) -> CallRef {
    while (!queue.empty()) {
      CallRef call = std::move(queue.front());
      queue.pop_front();
      if (!call->over) return call;
    }
    return nullptr;
  };
  if (CallRef call = pop(urgent); call != nullptr) return call;
  if (background_running >= std::max<std::size_t>(options.threads / 2, 1)) return nullptr;
  return pop(background);
}

DoneStatus DeadlinePool::State::TakeDone(Call& call) {
  if (call.over) return nullptr;
  call.over = true;
  deadlines.erase({call.due, call.number});
  return std::move(call.done);
}

void DeadlinePool::State::RunThread(std::size_t index) {
  absl::MutexLock lock(&mutex);
  while (!closing) {
    const CallRef call = TakeNext();
    if (call == nullptr) {
      work_wake.Wait(&mutex);
      continue;
    }
    call->running = true;
    threads[index].call = call;
    const bool in_background = call->urgency == Urgency::kBackground;
    background_running += in_background ? 1 : 0;
    mutex.Unlock();
    const absl::Status status = call->work();
    call->work = nullptr;  // what it owned is nobody's concern any more
    mutex.Lock();
    call->running = false;
    background_running -= in_background ? 1 : 0;
    const bool back = health.OnAnswer();  // late answers count too
    DoneStatus done = TakeDone(*call);
    const bool quiet = closing;
    mutex.Unlock();
    // After the end of the pool, which may be the end of the process, a late thread touches nothing but its state.
    if (back && !quiet) spdlog::info("{} answers again", options.name);
    if (done) std::move(done)(status);
    done = nullptr;
    mutex.Lock();
    threads[index].call = nullptr;
    if (in_background) work_wake.Signal();
  }
  threads[index].ended = true;
}

void DeadlinePool::State::RunWatchdog() {
  absl::MutexLock lock(&mutex);
  while (!closing) {
    if (deadlines.empty()) {
      watchdog_wake.Wait(&mutex);
      continue;
    }
    const absl::Duration now = MonotonicNow();
    const absl::Duration due = deadlines.begin()->first.first;
    if (due > now) {
      watchdog_wake.WaitWithTimeout(&mutex, due - now);
      continue;
    }
    const CallRef call = deadlines.begin()->second;
    DoneStatus done = TakeDone(*call);
    ++timeouts;
    const bool news = health.OnTimeout(now);
    Work unused;  // destroyed outside the lock: it may own much
    if (!call->running) unused = std::move(call->work);
    mutex.Unlock();
    if (news) spdlog::warn("{} does not answer: given up for a while, what is in it will be missed", options.name);
    unused = nullptr;
    std::move(done)(absl::DeadlineExceededError(fmt::format("{} did not answer in time", options.name)));
    done = nullptr;
    mutex.Lock();
  }
}

// Every thread has ended or sits in a call that was given up.
bool DeadlinePool::State::Quiet() const {
  return std::all_of(threads.begin(), threads.end(), [](const Thread& thread) {
    return thread.ended || (thread.call != nullptr && thread.call->running && thread.call->over);
  });
}

DeadlinePool::DeadlinePool(const Options& options) : state_(std::make_shared<State>(options)) {
  const std::shared_ptr<State> state = state_;
  {
    absl::MutexLock lock(&state->mutex);
    state->threads.resize(std::max<std::size_t>(options.threads, 1));
    for (std::size_t i = 0; i < state->threads.size(); ++i) {
      state->threads[i].handle = std::thread([state, i] { state->RunThread(i); });
    }
  }
  state->watchdog = std::thread([state] { state->RunWatchdog(); });
}

DeadlinePool::~DeadlinePool() {
  State& state = *state_;
  std::vector<State::CallRef> waiting;
  {
    absl::MutexLock lock(&state.mutex);
    state.closing = true;
    for (auto* queue : {&state.urgent, &state.background}) {
      waiting.insert(waiting.end(), queue->begin(), queue->end());
      queue->clear();
    }
    state.work_wake.SignalAll();
    state.watchdog_wake.SignalAll();
  }
  state.watchdog.join();
  const absl::Status closing = absl::CancelledError(fmt::format("{}: the store is closing", state.options.name));
  for (const State::CallRef& call : waiting) {
    DoneStatus done;
    {
      absl::MutexLock lock(&state.mutex);
      done = state.TakeDone(*call);
    }
    if (done) std::move(done)(closing);
  }
  std::vector<State::CallRef> abandoned;
  std::vector<DoneStatus> completions;
  std::vector<std::thread> ended;
  {
    absl::MutexLock lock(&state.mutex);
    state.mutex.AwaitWithTimeout(absl::Condition(&state, &State::Quiet), state.options.close_timeout);
    for (const State::Thread& thread : state.threads) {
      if (thread.call == nullptr) continue;
      if (DoneStatus done = state.TakeDone(*thread.call)) completions.push_back(std::move(done));
    }
  }
  for (DoneStatus& done : completions) std::move(done)(closing);
  {
    absl::MutexLock lock(&state.mutex);
    // A thread may be inside a completion, which doesn't block: waited for without limit.
    state.mutex.Await(absl::Condition(&state, &State::Quiet));
    for (State::Thread& thread : state.threads) {
      thread.ended ? ended.push_back(std::move(thread.handle)) : thread.handle.detach();
    }
  }
  for (std::thread& thread : ended) thread.join();
}

void DeadlinePool::Run(Urgency urgency, absl::Duration timeout, Work work, DoneStatus done) {
  State& state = *state_;
  absl::Status refused;
  {
    absl::MutexLock lock(&state.mutex);
    const absl::Duration now = MonotonicNow();
    auto& queue = urgency == Urgency::kReader ? state.urgent : state.background;
    if (state.closing) {
      refused = absl::CancelledError(fmt::format("{}: the store is closing", state.options.name));
    } else if (queue.size() >= state.options.queue_limit) {
      refused = absl::ResourceExhaustedError(fmt::format("{}: too much is waiting for it", state.options.name));
    } else if (!state.health.Admit(now)) {
      refused = absl::UnavailableError(fmt::format("{} does not answer; it will be tried again", state.options.name));
    } else {
      auto call = std::make_shared<State::Call>();
      call->work = std::move(work);
      call->done = std::move(done);
      call->urgency = urgency;
      call->due = now + timeout;
      call->number = state.next_number++;
      const auto [at, inserted] = state.deadlines.emplace(std::pair(call->due, call->number), call);
      if (at == state.deadlines.begin()) state.watchdog_wake.Signal();
      queue.push_back(std::move(call));
      state.work_wake.Signal();
      return;
    }
  }
  work = nullptr;
  std::move(done)(std::move(refused));
}

DeadlinePool::Counters DeadlinePool::counters() const {
  absl::MutexLock lock(&state_->mutex);
  Counters counters;
  counters.timeouts = state_->timeouts;
  counters.given_up = state_->health.given_up();
  for (const State::Thread& thread : state_->threads) {
    counters.stuck += thread.call != nullptr && thread.call->running && thread.call->over ? 1 : 0;
  }
  return counters;
}

}  // namespace kvist
