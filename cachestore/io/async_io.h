// Asynchronous transfers. io_uring where the kernel gives it (uring_io.h), else a small pool of threads with
// pread/pwrite (pool_io.h), behind one seam. Files come from cachestore/io/file.h.
//
// A request is owned by its submitter and must stay valid and unmoved until `done` runs; so must its buffer: it
// belongs to the kernel until then. `done` runs exactly once, on an I/O thread; it may submit again, must not block,
// and may destroy the request.
// Thread safety: all methods from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace kvist {

class File;
class ForegroundReads;  // foreground_reads.h

struct IoRequest {
  enum class Kind : std::uint8_t { kRead, kWrite, kSyncData };

  Kind kind = Kind::kRead;
  File* file = nullptr;
  std::uint64_t offset = 0;
  std::byte* data = nullptr;  // only read from for kWrite
  std::size_t length = 0;
  // OK means all `length` bytes. OutOfRange: the file ends before. Otherwise as ErrnoStatus.
  absl::AnyInvocable<void(const absl::Status&)> done;

  // The engine's own.
  std::size_t transferred = 0;
  std::uint32_t retries = 0;
};

struct AsyncIoOptions {
  enum class Backend : std::uint8_t { kAuto, kUring, kThreads };
  Backend backend = Backend::kAuto;
  std::uint32_t queue_depth = 32;  // requests in flight over all threads; more wait in the queue
  std::uint32_t threads = 1;       // I/O threads, one ring each; the pool backend makes its own choice
  // Of the same device's engines; null: each for itself. The pool of threads takes no notice: it is for file systems
  // without a device queue of their own.
  std::shared_ptr<ForegroundReads> reads = nullptr;
  bool background = false;  // yields to `reads`; otherwise its reads are those
};

class AsyncIo {
 public:
  // Completes everything submitted first.
  virtual ~AsyncIo() = default;

  // Requests begin in order, but syncs at once: a sync covers the writes whose `done` ran before it was submitted.
  virtual void Submit(std::span<IoRequest* const> requests) = 0;

  // Registers memory that transfers will use, so that each need not pin its pages. At most once; a refusal
  // (RLIMIT_MEMLOCK, say) changes speed only.
  virtual absl::Status RegisterBuffer(std::span<std::byte> memory) = 0;

  virtual std::string_view name() const = 0;  // "io_uring" or "threads"
};

// Unavailable or Unimplemented, with the kernel's reason, if kUring is asked for and denied; kAuto logs it and falls
// back.
absl::StatusOr<std::unique_ptr<AsyncIo>> NewAsyncIo(const AsyncIoOptions& options);

// Submits all and waits for all; their results in order. Not for use on an I/O thread. Sets the requests' `done`.
std::vector<absl::Status> RunAll(AsyncIo& io, std::span<IoRequest* const> requests);

}  // namespace kvist
