#include "cachestore/io/async_io.h"

#include "absl/synchronization/blocking_counter.h"
#include "cachestore/io/pool_io.h"
#include "cachestore/io/uring_io.h"
#include "spdlog/spdlog.h"

namespace kvist {

absl::StatusOr<std::unique_ptr<AsyncIo>> NewAsyncIo(const AsyncIoOptions& options) {
  if (options.backend == AsyncIoOptions::Backend::kThreads) return NewPoolIo(options);
  absl::StatusOr<std::unique_ptr<AsyncIo>> uring = NewUringIo(options);
  if (uring.ok() || options.backend == AsyncIoOptions::Backend::kUring) return uring;
  spdlog::warn("{}; carrying on with a pool of threads", std::string(uring.status().message()));
  return NewPoolIo(options);
}

std::vector<absl::Status> RunAll(AsyncIo& io, std::span<IoRequest* const> requests) {
  std::vector<absl::Status> results(requests.size());
  if (requests.empty()) return results;
  absl::BlockingCounter pending(static_cast<int>(requests.size()));
  for (std::size_t i = 0; i < requests.size(); ++i) {
    requests[i]->done = [&results, &pending, i](const absl::Status& status) {
      results[i] = status;
      pending.DecrementCount();
    };
  }
  io.Submit(requests);
  pending.Wait();
  return results;
}

}  // namespace kvist
