#include "cachestore/io/pool_io.h"

#include <algorithm>
#include <deque>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "cachestore/io/file.h"

namespace kvist {
namespace {

// Enough to keep an SSD busy with transfers of 64 KiB and more; each costs a stack and a switch.
constexpr std::uint32_t kPoolThreadsMax = 16;

class PoolIo final : public AsyncIo {
 public:
  explicit PoolIo(const AsyncIoOptions& options) {
    const std::uint32_t threads = std::clamp<std::uint32_t>(options.queue_depth, 1, kPoolThreadsMax);
    threads_.reserve(threads);
    for (std::uint32_t i = 0; i < threads; ++i) threads_.emplace_back([this] { Run(); });
  }

  ~PoolIo() override {
    {
      absl::MutexLock lock(&mutex_);
      stopping_ = true;
    }
    for (std::thread& thread : threads_) thread.join();
  }

  void Submit(std::span<IoRequest* const> requests) override {
    absl::MutexLock lock(&mutex_);
    for (IoRequest* request : requests) {
      // A sync covers what has ended by now; behind writes that came later it would only wait longer.
      if (request->kind == IoRequest::Kind::kSyncData) {
        queue_.push_front(request);
      } else {
        queue_.push_back(request);
      }
    }
  }

  absl::Status RegisterBuffer(std::span<std::byte>) override { return absl::OkStatus(); }
  std::string_view name() const override { return "threads"; }

 private:
  bool Ready() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !queue_.empty() || stopping_; }

  void Run() {
    for (;;) {
      IoRequest* request = nullptr;
      {
        absl::MutexLock lock(&mutex_);
        mutex_.Await(absl::Condition(this, &PoolIo::Ready));
        if (queue_.empty()) return;
        request = queue_.front();
        queue_.pop_front();
      }
      const absl::Status status = Perform(*request);
      auto done = std::move(request->done);  // `done` may destroy the request
      done(status);
    }
  }

  static absl::Status Perform(const IoRequest& request) {
    switch (request.kind) {
      case IoRequest::Kind::kRead:
        return ReadFull(*request.file, request.offset, {request.data, request.length});
      case IoRequest::Kind::kWrite:
        return WriteFull(*request.file, request.offset, {request.data, request.length});
      case IoRequest::Kind::kSyncData:
        return request.file->SyncData();
    }
    return absl::InternalError("unknown kind of request");
  }

  absl::Mutex mutex_;
  std::deque<IoRequest*> queue_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace

std::unique_ptr<AsyncIo> NewPoolIo(const AsyncIoOptions& options) { return std::make_unique<PoolIo>(options); }

}  // namespace kvist
