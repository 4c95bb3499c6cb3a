// HostDeviceTier: the page pool of an engine that computes on the CPU. Loading a block aliases its payload where it
// lies (the DRAM arena, leased), so a hit copies nothing.
// Thread safety: any thread.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "cachestore/tier/device_tier.h"

namespace kvist {

class HostDeviceTier final : public DeviceTier {
 public:
  // Address space for `pages` pages; memory is taken as pages are first written. ResourceExhausted if refused.
  static absl::StatusOr<std::unique_ptr<DeviceTier>> Create(std::size_t page_bytes, std::size_t pages);
  ~HostDeviceTier() override;
  HostDeviceTier(const HostDeviceTier&) = delete;
  HostDeviceTier& operator=(const HostDeviceTier&) = delete;

  std::size_t page_bytes() const override { return page_bytes_; }
  std::size_t free_pages() const override;
  absl::StatusOr<DevicePage> Allocate() override;
  absl::StatusOr<DevicePage> Load(std::span<const std::byte> payload) override;
  absl::Status Store(const DevicePage& page, std::span<std::byte> payload) override;
  absl::Status Wait() override { return absl::OkStatus(); }  // nothing is asynchronous here
  void Free(const DevicePage& page) override;

 private:
  HostDeviceTier(std::size_t page_bytes, std::size_t page_stride, std::span<std::byte> memory, std::size_t pages);

  const std::size_t page_bytes_;
  const std::size_t page_stride_;  // page_bytes_ rounded up, so that every page is aligned
  const std::span<std::byte> memory_;
  mutable absl::Mutex mutex_;
  std::vector<std::uint32_t> free_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace kvist
