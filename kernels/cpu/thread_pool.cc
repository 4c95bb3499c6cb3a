#include "kernels/cpu/thread_pool.h"

#include <sched.h>

#include <algorithm>

#include "hwy/cache_control.h"

namespace kvist::kernels {
namespace {

// About 20 us: longer than the gap between two operations of a forward pass, shorter than a scheduler's time slice.
constexpr int kSpins = 1000;

void WaitWhileEqual(const std::atomic<std::uint32_t>& value, std::uint32_t old) {
  for (int i = 0; i < kSpins; ++i) {
    if (value.load(std::memory_order_acquire) != old) return;
    hwy::Pause();
  }
  value.wait(old, std::memory_order_acquire);
}

}  // namespace

std::size_t ThreadPool::AvailableCores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  // Fails on machines with more cores than the set holds; then the library's own count serves.
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return std::max(1u, std::thread::hardware_concurrency());
  return static_cast<std::size_t>(std::max(1, CPU_COUNT(&set)));
}

ThreadPool::ThreadPool(std::size_t threads) {
  if (threads == 0) threads = AvailableCores();
  threads = std::min(threads, kMaxThreads);
  threads_.reserve(threads - 1);
  for (std::size_t worker = 1; worker < threads; ++worker) threads_.emplace_back([this, worker] { Loop(worker); });
}

ThreadPool::~ThreadPool() {
  stop_.store(true, std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::Run(absl::FunctionRef<void(std::size_t worker)> work) {
  if (!threads_.empty()) {
    work_ = &work;
    running_.store(static_cast<std::uint32_t>(threads_.size()), std::memory_order_relaxed);
    generation_.fetch_add(1, std::memory_order_release);
    generation_.notify_all();
  }
  work(0);
  for (std::uint32_t left = running_.load(std::memory_order_acquire); left != 0;
       left = running_.load(std::memory_order_acquire)) {
    WaitWhileEqual(running_, left);
  }
}

void ThreadPool::Loop(std::size_t worker) {
  for (std::uint32_t seen = 0;; ++seen) {
    WaitWhileEqual(generation_, seen);
    if (stop_.load(std::memory_order_relaxed)) return;
    (*work_)(worker);
    if (running_.fetch_sub(1, std::memory_order_acq_rel) == 1) running_.notify_all();
  }
}

RowRange ThreadPool::Share(std::size_t total, std::size_t multiple, std::size_t worker) const {
  const std::size_t pieces = (total + multiple - 1) / multiple;
  const std::size_t begin = pieces * worker / size() * multiple;
  const std::size_t end = pieces * (worker + 1) / size() * multiple;
  return {std::min(begin, total), std::min(end, total)};
}

}  // namespace kvist::kernels
