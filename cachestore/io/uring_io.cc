#include "cachestore/io/uring_io.h"

#include <liburing.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <deque>
#include <limits>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "cachestore/io/errno_status.h"
#include "cachestore/io/file.h"
#include "cachestore/io/foreground_reads.h"
#include "fmt/format.h"

namespace kvist {
namespace {

// The kernel's bound on one registered buffer.
constexpr std::size_t kRegisteredChunkBytes = std::size_t{1} << 30;
// One transfer's length is 32 bits in the ring, and the kernel moves at most 2 GiB - 4 KiB at once.
constexpr std::size_t kTransferBytesMax = std::size_t{1} << 30;
// EAGAIN and EINTR are passing states; a request that meets nothing else this often is reported as failed.
constexpr std::uint32_t kRetriesMax = 1000;
// Room for the wake-up read besides the transfers.
constexpr std::uint32_t kRingExtraEntries = 1;

// What a background engine keeps in flight: what a device needs for its full speed and no more, since a read that comes
// waits behind all of it. While somebody does wait for reads, just enough to keep writing.
struct Pace {
  std::uint32_t depth;
  std::size_t transfer_bytes;
};
constexpr Pace kBackgroundPace = {8, std::size_t{512} << 10};
constexpr Pace kYieldingPace = {2, std::size_t{256} << 10};

// One ring, its thread, and the queue through which other threads reach it.
class Ring {
 public:
  Ring(std::uint32_t depth, std::shared_ptr<ForegroundReads> reads, bool background)
      : depth_(depth), reads_(std::move(reads)), background_(background) {}

  ~Ring() {
    if (thread_.joinable()) {
      Wake([this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { stopping_ = true; });
      thread_.join();
    }
    if (event_fd_ >= 0) ::close(event_fd_);
  }

  absl::Status Start() {
    event_fd_ = ::eventfd(0, EFD_CLOEXEC);
    if (event_fd_ < 0) return ErrnoStatus(errno, "eventfd");
    absl::Notification started;
    absl::Status status;
    thread_ = std::thread([this, &started, &status] {
      // The ring is made by the thread that uses it: IORING_SETUP_SINGLE_ISSUER binds it to its maker.
      status = Init();
      const bool ok = status.ok();
      started.Notify();
      if (ok) Run();
    });
    started.WaitForNotification();
    if (!status.ok()) thread_.join();
    return status;
  }

  void Submit(std::span<IoRequest* const> requests) {
    for (const IoRequest* request : requests) {
      if (IsForeground(*request)) reads_->Begin();
    }
    Wake([&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      incoming_.insert(incoming_.end(), requests.begin(), requests.end());
    });
  }

  absl::Status RegisterBuffer(std::span<std::byte> memory) {
    Registration registration{memory, {}, {}};
    Wake([&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { registration_ = &registration; });
    registration.finished.WaitForNotification();
    return registration.status;
  }

 private:
  struct Registration {
    std::span<std::byte> memory;
    absl::Status status;
    absl::Notification finished;
  };

  absl::Status Init() {
    const unsigned entries = depth_ + kRingExtraEntries;
    int result = io_uring_queue_init(entries, &ring_, IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN);
    if (result == -EINVAL) result = io_uring_queue_init(entries, &ring_, 0);  // before Linux 6.1
    if (result < 0) return ErrnoStatus(-result, "io_uring is denied");
    io_uring_probe* probe = io_uring_get_probe_ring(&ring_);
    const bool able = probe != nullptr && io_uring_opcode_supported(probe, IORING_OP_READ) &&
                      io_uring_opcode_supported(probe, IORING_OP_WRITE) &&
                      io_uring_opcode_supported(probe, IORING_OP_FSYNC);
    if (probe != nullptr) io_uring_free_probe(probe);
    if (!able) {
      io_uring_queue_exit(&ring_);
      return absl::UnavailableError("io_uring of this kernel lacks reads and writes (Linux 5.6 has them)");
    }
    return absl::OkStatus();
  }

  // Changes the shared state and wakes the ring's thread if it may be waiting in the kernel.
  template <typename Change>
  void Wake(Change change) {
    bool wake = false;
    {
      absl::MutexLock lock(&mutex_);
      change();
      wake = std::exchange(asleep_, false);
    }
    if (!wake) return;
    const std::uint64_t one = 1;
    // Cannot fail: the counter holds one per loop of the thread at most.
    while (::write(event_fd_, &one, sizeof one) < 0 && errno == EINTR) {
    }
  }

  void Run() {
    for (;;) {
      if (!TakeIncoming()) break;
      ArmWakeUp();
      const Pace pace = CurrentPace();
      while (in_flight_ < pace.depth && !waiting_.empty()) {
        Prepare(waiting_.front(), pace.transfer_bytes);
        waiting_.pop_front();
      }
      const int result = io_uring_submit_and_wait(&ring_, 1);
      if (result < 0 && result != -EINTR && result != -EAGAIN && result != -EBUSY) {
        FailAll(-result);
        break;
      }
      Reap();
    }
    io_uring_queue_exit(&ring_);
  }

  Pace CurrentPace() const {
    if (!background_ || reads_ == nullptr) return {depth_, kTransferBytesMax};
    const Pace& pace = reads_->Likely() ? kYieldingPace : kBackgroundPace;
    return {std::min(pace.depth, depth_), pace.transfer_bytes};
  }

  // Moves new requests in. False: time to stop, and nothing is left to do.
  bool TakeIncoming() {
    Registration* registration = nullptr;
    bool stopping = false;
    {
      absl::MutexLock lock(&mutex_);
      for (IoRequest* request : incoming_) Queue(request);
      incoming_.clear();
      registration = std::exchange(registration_, nullptr);
      stopping = stopping_;
      // With the ring full, a completion comes first anyhow.
      asleep_ = in_flight_ + waiting_.size() < depth_ || in_flight_ == 0;
    }
    if (registration != nullptr) {
      registration->status = Register(registration->memory);
      registration->finished.Notify();
    }
    return !(stopping && waiting_.empty() && in_flight_ == 0);
  }

  // A sync covers what has ended by now; behind writes that came later it would only wait longer.
  void Queue(IoRequest* request) {
    if (request->kind == IoRequest::Kind::kSyncData) {
      waiting_.push_front(request);
    } else {
      waiting_.push_back(request);
    }
  }

  absl::Status Register(std::span<std::byte> memory) {
    if (!registered_.empty()) return absl::AlreadyExistsError("a buffer is registered already");
    std::vector<iovec> chunks;
    for (std::size_t at = 0; at < memory.size(); at += kRegisteredChunkBytes) {
      chunks.push_back({memory.data() + at, std::min(kRegisteredChunkBytes, memory.size() - at)});
    }
    if (chunks.empty()) return absl::InvalidArgumentError("an empty buffer");
    const int result = io_uring_register_buffers(&ring_, chunks.data(), static_cast<unsigned>(chunks.size()));
    if (result < 0) return ErrnoStatus(-result, "register buffers with io_uring (see ulimit -l)");
    registered_ = memory;
    return absl::OkStatus();
  }

  void ArmWakeUp() {
    if (wake_up_armed_) return;
    io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
    io_uring_prep_read(sqe, event_fd_, &event_count_, sizeof event_count_, 0);
    io_uring_sqe_set_data(sqe, nullptr);
    wake_up_armed_ = true;
  }

  // The registered chunk that holds all of this memory; -1: none.
  int RegisteredChunk(const std::byte* data, std::size_t length) const {
    if (registered_.empty() || data < registered_.data() || data + length > registered_.data() + registered_.size()) {
      return -1;
    }
    const std::size_t at = static_cast<std::size_t>(data - registered_.data());
    const std::size_t chunk = at / kRegisteredChunkBytes;
    return (at + length - 1) / kRegisteredChunkBytes == chunk ? static_cast<int>(chunk) : -1;
  }

  // A longer transfer goes in pieces of at most `bytes_max`.
  void Prepare(IoRequest* request, std::size_t bytes_max) {
    // One entry per request in flight and one for the wake-up: never null.
    io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
    const int fd = request->file->fd();
    std::byte* data = request->data + request->transferred;
    const std::size_t left = std::min(request->length - request->transferred, bytes_max);
    const auto length = static_cast<unsigned>(left);
    const std::uint64_t offset = request->offset + request->transferred;
    if (request->kind == IoRequest::Kind::kSyncData) {
      io_uring_prep_fsync(sqe, fd, IORING_FSYNC_DATASYNC);
    } else {
      const int chunk = RegisteredChunk(data, left);
      if (request->kind == IoRequest::Kind::kRead) {
        if (chunk >= 0) {
          io_uring_prep_read_fixed(sqe, fd, data, length, offset, chunk);
        } else {
          io_uring_prep_read(sqe, fd, data, length, offset);
        }
      } else if (chunk >= 0) {
        io_uring_prep_write_fixed(sqe, fd, data, length, offset, chunk);
      } else {
        io_uring_prep_write(sqe, fd, data, length, offset);
      }
    }
    io_uring_sqe_set_data(sqe, request);
    ++in_flight_;
  }

  // Handles every completion at hand. `done` may submit again: that goes through the queue like any other.
  void Reap() {
    io_uring_cqe* cqe = nullptr;
    while (io_uring_peek_cqe(&ring_, &cqe) == 0) {
      auto* request = static_cast<IoRequest*>(io_uring_cqe_get_data(cqe));
      const int result = cqe->res;
      io_uring_cqe_seen(&ring_, cqe);
      if (request == nullptr) {
        wake_up_armed_ = false;
        continue;
      }
      --in_flight_;
      Complete(request, result);
    }
  }

  void Complete(IoRequest* request, int result) {
    if (result == -EAGAIN || result == -EINTR) {
      if (++request->retries <= kRetriesMax && request->kind != IoRequest::Kind::kSyncData) {
        waiting_.push_back(request);
        return;
      }
    }
    absl::Status status;
    if (result < 0) {
      status = Failure(*request, -result);
    } else if (request->kind != IoRequest::Kind::kSyncData) {
      request->transferred += static_cast<std::size_t>(result);
      if (request->transferred < request->length) {
        if (result > 0) {  // a short transfer, or a piece: the rest goes next
          waiting_.push_front(request);
          return;
        }
        status = request->kind == IoRequest::Kind::kRead
                     ? absl::OutOfRangeError(fmt::format("{} ends before offset {}", request->file->path(),
                                                         request->offset + request->length))
                     : Failure(*request, EIO);
      }
    }
    Finish(request, status);
  }

  void Finish(IoRequest* request, const absl::Status& status) {
    if (IsForeground(*request)) reads_->End();
    auto done = std::move(request->done);  // `done` may destroy the request
    done(status);
  }

  static absl::Status Failure(const IoRequest& request, int error) {
    static constexpr std::string_view kNames[] = {"read", "write", "fdatasync"};
    return ErrnoStatus(error, fmt::format("{} {} at {}", kNames[static_cast<int>(request.kind)], request.file->path(),
                                          request.offset));
  }

  // After the ring broke: fails what has not been given to the kernel, now and until the end. What has been given
  // stays the kernel's; its buffers must not be touched, so it is not reported done. (No known kernel gets here.)
  void FailAll(int error) {
    const absl::Status status = ErrnoStatus(error, "io_uring stopped working; restart the store");
    for (;;) {
      for (IoRequest* request : std::exchange(waiting_, {})) Finish(request, status);
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(this, &Ring::HasNews));
      waiting_.assign(incoming_.begin(), incoming_.end());
      incoming_.clear();
      if (registration_ != nullptr) {
        registration_->status = status;
        std::exchange(registration_, nullptr)->finished.Notify();
      }
      if (stopping_ && waiting_.empty()) return;
    }
  }

  bool HasNews() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return stopping_ || !incoming_.empty() || registration_ != nullptr;
  }

  bool IsForeground(const IoRequest& request) const {
    return reads_ != nullptr && !background_ && request.kind == IoRequest::Kind::kRead;
  }

  const std::uint32_t depth_;
  const std::shared_ptr<ForegroundReads> reads_;
  const bool background_;
  int event_fd_ = -1;
  std::thread thread_;

  absl::Mutex mutex_;
  std::vector<IoRequest*> incoming_ ABSL_GUARDED_BY(mutex_);
  Registration* registration_ ABSL_GUARDED_BY(mutex_) = nullptr;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool asleep_ ABSL_GUARDED_BY(mutex_) = false;

  // The ring thread's own.
  io_uring ring_{};
  std::deque<IoRequest*> waiting_;
  std::uint32_t in_flight_ = 0;
  bool wake_up_armed_ = false;
  std::uint64_t event_count_ = 0;
  std::span<std::byte> registered_;
};

class UringIo final : public AsyncIo {
 public:
  explicit UringIo(std::vector<std::unique_ptr<Ring>> rings) : rings_(std::move(rings)) {}

  void Submit(std::span<IoRequest* const> requests) override {
    for (IoRequest* request : requests) {
      request->transferred = 0;
      request->retries = 0;
    }
    if (rings_.size() == 1) {
      rings_[0]->Submit(requests);
    } else if (requests.size() == 1) {
      rings_[next_.fetch_add(1, std::memory_order_relaxed) % rings_.size()]->Submit(requests);
    } else {
      // Contiguous shares: each ring is woken once.
      const std::size_t share = (requests.size() + rings_.size() - 1) / rings_.size();
      for (std::size_t i = 0; i * share < requests.size(); ++i) {
        rings_[i]->Submit(requests.subspan(i * share, std::min(share, requests.size() - i * share)));
      }
    }
  }

  absl::Status RegisterBuffer(std::span<std::byte> memory) override {
    for (auto& ring : rings_) {
      if (absl::Status status = ring->RegisterBuffer(memory); !status.ok()) return status;
    }
    return absl::OkStatus();
  }

  std::string_view name() const override { return "io_uring"; }

 private:
  std::vector<std::unique_ptr<Ring>> rings_;
  std::atomic<std::uint64_t> next_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<AsyncIo>> NewUringIo(const AsyncIoOptions& options) {
  const std::uint32_t threads = std::max<std::uint32_t>(options.threads, 1);
  const std::uint32_t depth = std::max<std::uint32_t>(options.queue_depth / threads, 1);
  std::vector<std::unique_ptr<Ring>> rings;
  for (std::uint32_t i = 0; i < threads; ++i) {
    rings.push_back(std::make_unique<Ring>(depth, options.reads, options.background));
    if (absl::Status status = rings.back()->Start(); !status.ok()) {
      rings.pop_back();
      return status;
    }
  }
  return std::make_unique<UringIo>(std::move(rings));
}

}  // namespace kvist
