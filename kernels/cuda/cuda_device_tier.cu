#include <cuda_runtime_api.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "kernels/cuda/cuda_device_tier.h"

namespace kvist::kernels {
namespace {

// `what` failed: the status that says so, by what the caller can do about it.
absl::Status ToStatus(cudaError_t error, const std::string& what) {
  if (error == cudaSuccess) return absl::OkStatus();
  const std::string message = what + ": " + cudaGetErrorString(error);
  switch (error) {
    case cudaErrorMemoryAllocation:
      return absl::ResourceExhaustedError(message + ". Ask for fewer pages.");
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver:
    case cudaErrorInvalidDevice:
    case cudaErrorDevicesUnavailable:
      return absl::UnavailableError(message + ". Check the driver with nvidia-smi, or use the CPU build.");
    default:
      return absl::InternalError(message);
  }
}

// The calling thread's current device, put back at the end: which one it is belongs to the caller.
class ScopedDevice {
 public:
  explicit ScopedDevice(int device) {
    status_ = ToStatus(cudaGetDevice(&previous_), "cudaGetDevice");
    if (status_.ok()) status_ = ToStatus(cudaSetDevice(device), "cudaSetDevice");
  }
  ~ScopedDevice() {
    if (status_.ok()) cudaSetDevice(previous_);
  }
  ScopedDevice(const ScopedDevice&) = delete;
  ScopedDevice& operator=(const ScopedDevice&) = delete;

  const absl::Status& status() const { return status_; }

 private:
  int previous_ = 0;
  absl::Status status_;
};

class Tier final : public CudaDeviceTier {
 public:
  explicit Tier(const CudaDeviceTierOptions& options) : options_(options) {}

  ~Tier() override {
    ScopedDevice device(options_.device);
    if (!device.status().ok()) return;
    // Copies still in flight read and write memory that is about to go.
    if (stream_ != nullptr) cudaStreamSynchronize(stream_);
    if (copied_ != nullptr) cudaEventDestroy(copied_);
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
    if (registered_) cudaHostUnregister(ArenaAddress());
    if (pool_ != nullptr) cudaFree(pool_);
  }

  absl::Status Start() {
    ScopedDevice device(options_.device);
    if (!device.status().ok()) return device.status();
    void* pool = nullptr;
    const std::size_t bytes = options_.page_bytes * options_.pages;
    absl::Status status =
        ToStatus(cudaMalloc(&pool, bytes), "cannot allocate " + std::to_string(bytes) + " bytes of device memory");
    if (!status.ok()) return status;
    pool_ = static_cast<std::byte*>(pool);
    // Non-blocking: the legacy default stream must not order itself against the copies.
    status = ToStatus(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cannot create the copy stream");
    if (!status.ok()) return status;
    status = ToStatus(cudaEventCreateWithFlags(&copied_, cudaEventDisableTiming), "cannot create the copy event");
    if (!status.ok()) return status;
    RegisterArena();
    absl::MutexLock lock(&mutex_);
    free_.reserve(options_.pages);
    for (std::uint32_t id = options_.pages; id > 0; --id) free_.push_back(id - 1);  // low addresses first
    return absl::OkStatus();
  }

  std::size_t page_bytes() const override { return options_.page_bytes; }

  std::size_t free_pages() const override {
    absl::MutexLock lock(&mutex_);
    return free_.size();
  }

  absl::StatusOr<DevicePage> Allocate() override {
    absl::MutexLock lock(&mutex_);
    if (free_.empty()) {
      return absl::ResourceExhaustedError("all " + std::to_string(options_.pages) + " device pages are in use");
    }
    const std::uint32_t id = free_.back();
    free_.pop_back();
    std::byte* data = Address(id);
    return DevicePage{.data = data, .writable = data, .id = id};
  }

  absl::StatusOr<DevicePage> Load(std::span<const std::byte> payload) override {
    absl::Status status = CheckSize(payload.size());
    if (!status.ok()) return status;
    absl::StatusOr<DevicePage> page = Allocate();
    if (!page.ok()) return page.status();
    status = Copy(page->writable, payload.data(), cudaMemcpyHostToDevice);
    if (!status.ok()) {
      Free(*page);
      return status;
    }
    page->writable = nullptr;  // its contents are the stored block's
    return page;
  }

  absl::Status Store(const DevicePage& page, std::span<std::byte> payload) override {
    const absl::Status status = CheckSize(payload.size());
    return status.ok() ? Copy(payload.data(), page.data, cudaMemcpyDeviceToHost) : status;
  }

  absl::Status Wait() override {
    ScopedDevice device(options_.device);
    if (!device.status().ok()) return device.status();
    absl::Status status = ToStatus(cudaStreamSynchronize(stream_), "a copy to or from the device failed");
    absl::MutexLock lock(&mutex_);
    if (!first_failure_.ok()) status = std::exchange(first_failure_, absl::OkStatus());
    return status;
  }

  void Free(const DevicePage& page) override {
    absl::MutexLock lock(&mutex_);
    free_.push_back(page.id);
  }

  bool arena_registered() const override { return registered_; }

  absl::Status OrderAfterCopies(CUstream_st* compute) override {
    ScopedDevice device(options_.device);
    if (!device.status().ok()) return device.status();
    // One event serves all callers: the lock makes record and wait one step.
    absl::MutexLock lock(&mutex_);
    const absl::Status recorded = ToStatus(cudaEventRecord(copied_, stream_), "cudaEventRecord");
    return recorded.ok() ? ToStatus(cudaStreamWaitEvent(compute, copied_, 0), "cudaStreamWaitEvent") : recorded;
  }

 private:
  std::byte* Address(std::uint32_t id) const { return pool_ + std::size_t{id} * options_.page_bytes; }
  void* ArenaAddress() const { return const_cast<std::byte*>(options_.host_arena.data()); }

  // A refusal costs speed only (the driver stages the copies), so it is no error: see arena_registered().
  void RegisterArena() {
    if (options_.host_arena.empty()) return;
    // Readers map the arena read-only, and CUDA must be told so where it can be.
    int read_only = 0;
    cudaDeviceGetAttribute(&read_only, cudaDevAttrHostRegisterReadOnlySupported, options_.device);
    const unsigned flags = cudaHostRegisterPortable | (read_only != 0 ? cudaHostRegisterReadOnly : 0u);
    registered_ = cudaHostRegister(ArenaAddress(), options_.host_arena.size(), flags) == cudaSuccess;
    if (!registered_) cudaGetLastError();  // else the next unrelated call would report it
  }

  absl::Status CheckSize(std::size_t bytes) const {
    if (bytes == options_.page_bytes) return absl::OkStatus();
    return absl::InvalidArgumentError("payload of " + std::to_string(bytes) + " bytes for pages of " +
                                      std::to_string(options_.page_bytes));
  }

  absl::Status Copy(void* to, const void* from, cudaMemcpyKind kind) {
    ScopedDevice device(options_.device);
    if (!device.status().ok()) return device.status();
    const absl::Status status =
        ToStatus(cudaMemcpyAsync(to, from, options_.page_bytes, kind, stream_), "cannot copy a page");
    if (!status.ok()) {
      absl::MutexLock lock(&mutex_);
      first_failure_.Update(status);
    }
    return status;
  }

  const CudaDeviceTierOptions options_;
  std::byte* pool_ = nullptr;  // set by Start, then constant, as are the three below
  cudaStream_t stream_ = nullptr;
  cudaEvent_t copied_ = nullptr;
  bool registered_ = false;
  mutable absl::Mutex mutex_;
  std::vector<std::uint32_t> free_ ABSL_GUARDED_BY(mutex_);
  absl::Status first_failure_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

absl::StatusOr<std::unique_ptr<CudaDeviceTier>> CudaDeviceTier::Create(const CudaDeviceTierOptions& options) {
  if (options.page_bytes == 0 || options.pages == 0) {
    return absl::InvalidArgumentError("a device tier needs at least one page of at least one byte");
  }
  auto tier = std::make_unique<Tier>(options);
  const absl::Status started = tier->Start();
  if (!started.ok()) return started;
  return std::unique_ptr<CudaDeviceTier>(std::move(tier));
}

}  // namespace kvist::kernels
