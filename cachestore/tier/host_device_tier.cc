#include "cachestore/tier/host_device_tier.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <limits>

#include "absl/memory/memory.h"
#include "fmt/format.h"

namespace kvist {
namespace {

constexpr std::size_t kPageAlignment = 4096;  // as block payloads in the store
constexpr std::uint32_t kAliased = std::numeric_limits<std::uint32_t>::max();

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceTier>> HostDeviceTier::Create(std::size_t page_bytes, std::size_t pages) {
  if (page_bytes == 0 || pages == 0 || pages >= kAliased ||
      page_bytes > std::numeric_limits<std::size_t>::max() / 2 / pages) {
    return absl::InvalidArgumentError(
        fmt::format("a page pool of {} pages of {} bytes can't be made", pages, page_bytes));
  }
  const std::size_t stride = (page_bytes + kPageAlignment - 1) / kPageAlignment * kPageAlignment;
  void* memory =
      mmap(nullptr, stride * pages, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    return absl::ResourceExhaustedError(fmt::format("{} bytes for KV pages refused: {}; lower the context length",
                                                    stride * pages, std::strerror(errno)));
  }
  // WrapUnique: the constructor is private, so make_unique can't reach it.
  return absl::WrapUnique<DeviceTier>(
      new HostDeviceTier(page_bytes, stride, {static_cast<std::byte*>(memory), stride * pages}, pages));
}

HostDeviceTier::HostDeviceTier(std::size_t page_bytes, std::size_t page_stride, std::span<std::byte> memory,
                               std::size_t pages)
    : page_bytes_(page_bytes), page_stride_(page_stride), memory_(memory) {
  free_.reserve(pages);
  for (std::size_t page = pages; page > 0; --page) free_.push_back(static_cast<std::uint32_t>(page - 1));
}

HostDeviceTier::~HostDeviceTier() { munmap(memory_.data(), memory_.size()); }

std::size_t HostDeviceTier::free_pages() const {
  absl::MutexLock lock(&mutex_);
  return free_.size();
}

absl::StatusOr<DevicePage> HostDeviceTier::Allocate() {
  absl::MutexLock lock(&mutex_);
  if (free_.empty()) {
    return absl::ResourceExhaustedError("all KV pages are in use; raise the context length or run fewer requests");
  }
  const std::uint32_t id = free_.back();
  free_.pop_back();
  std::byte* data = memory_.data() + id * page_stride_;
  return DevicePage{data, data, id};
}

absl::StatusOr<DevicePage> HostDeviceTier::Load(std::span<const std::byte> payload) {
  if (payload.size() != page_bytes_) {
    return absl::InvalidArgumentError(fmt::format("payload of {} bytes for pages of {}", payload.size(), page_bytes_));
  }
  return DevicePage{payload.data(), nullptr, kAliased};
}

absl::Status HostDeviceTier::Store(const DevicePage& page, std::span<std::byte> payload) {
  if (payload.size() != page_bytes_) {
    return absl::InvalidArgumentError(fmt::format("payload of {} bytes for pages of {}", payload.size(), page_bytes_));
  }
  std::memcpy(payload.data(), page.data, page_bytes_);
  return absl::OkStatus();
}

void HostDeviceTier::Free(const DevicePage& page) {
  if (page.id == kAliased) return;
  absl::MutexLock lock(&mutex_);
  free_.push_back(page.id);
}

}  // namespace kvist
