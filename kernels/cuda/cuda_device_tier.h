// CudaDeviceTier: the engine's page pool in device memory. Pages come from one allocation made at creation; payloads
// move on a copy stream of the tier's own, so copies overlap with computing and nothing ever synchronises the device
// as a whole. If the host arena that payloads lie in is registered, copies are direct DMA; otherwise the driver stages
// them.
// Thread safety: all methods from any thread. A page must not be freed while a Load or Store of it is in flight.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cachestore/tier/device_tier.h"

struct CUstream_st;  // cudaStream_t, so that users of this header need no CUDA headers

namespace kvist::kernels {

struct CudaDeviceTierOptions {
  int device = 0;
  std::size_t page_bytes = 0;
  std::uint32_t pages = 0;
  // The store's arena, to be registered for DMA; empty: none. Must outlive the tier. It may be mapped read-only.
  std::span<const std::byte> host_arena = {};
};

class CudaDeviceTier : public DeviceTier {
 public:
  // Unavailable: no usable device. ResourceExhausted: the pool does not fit. InvalidArgument: no pages, or empty ones.
  static absl::StatusOr<std::unique_ptr<CudaDeviceTier>> Create(const CudaDeviceTierOptions& options);

  // Whether host_arena is registered, so that copies are DMA; copies work either way.
  virtual bool arena_registered() const = 0;

  // Makes what is queued on `compute` from now on wait, on the device, for the copies begun so far. The host does not
  // wait. `compute` belongs to the tier's device.
  virtual absl::Status OrderAfterCopies(CUstream_st* compute) = 0;
};

}  // namespace kvist::kernels
