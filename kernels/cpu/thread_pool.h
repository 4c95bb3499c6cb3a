// A fixed set of threads that run one function together, each on its own share.
// Work is divided by index alone (Share), never by who is free: cheap, and the same division every time.
// Run is called by one thread at a time; that thread is worker 0.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"
#include "kernels/ops.h"

namespace kvist::kernels {

class ThreadPool {
 public:
  // More than this is a mistake, not a machine.
  static constexpr std::size_t kMaxThreads = 256;

  // The cores this process may run on (its affinity, not the machine's total).
  static std::size_t AvailableCores();

  // `threads` workers in all, the caller included; 0 means AvailableCores(). Clamped to 1..kMaxThreads.
  explicit ThreadPool(std::size_t threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  std::size_t size() const { return threads_.size() + 1; }

  // Calls work(worker) once for each worker 0..size()-1 and returns when all have returned. `work` must not throw.
  void Run(absl::FunctionRef<void(std::size_t worker)> work);

  // The worker's contiguous share of [0, total), cut at multiples of `multiple`.
  RowRange Share(std::size_t total, std::size_t multiple, std::size_t worker) const;

 private:
  void Loop(std::size_t worker);

  // Atomics rather than a mutex: a decode step is some 150 short Runs, and a sleep and wake-up in each would cost more
  // than the work. Waiters spin briefly, then sleep on the atomic.
  std::atomic<std::uint32_t> generation_{0};  // one up for each Run, and once to stop
  std::atomic<std::uint32_t> running_{0};     // workers not yet done with this generation
  std::atomic<bool> stop_{false};
  absl::FunctionRef<void(std::size_t)>* work_ = nullptr;  // written before generation_ is released
  std::vector<std::thread> threads_;
};

}  // namespace kvist::kernels
