// DeviceTier: the pool of KV pages where an engine computes. HostDeviceTier is memory the CPU engine reads directly;
// kernels/cuda implements it over HBM. A page holds one block's payload, layer-major, exactly as stored, so moving a
// block is one copy (or, on the host, none).
// Thread safety: all methods may be called from any thread; a page has one user at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace kvist {

// A page on the device. `data` is a device address: only kernels of that device may dereference it.
struct DevicePage {
  const std::byte* data = nullptr;
  std::byte* writable = nullptr;  // null for a page that aliases a leased payload
  std::uint32_t id = 0;           // the implementation's own handle
};

class DeviceTier {
 public:
  virtual ~DeviceTier() = default;

  virtual std::size_t page_bytes() const = 0;
  virtual std::size_t free_pages() const = 0;

  // An uninitialised, writable page. ResourceExhausted when the pool is empty.
  virtual absl::StatusOr<DevicePage> Allocate() = 0;

  // A read-only page with `payload`'s contents (page_bytes() long). The copy may still run when this returns: Wait()
  // before computing. `payload` must stay valid until Free(page): a host tier aliases it instead of copying.
  virtual absl::StatusOr<DevicePage> Load(std::span<const std::byte> payload) = 0;

  // Begins copying a page to `payload` (page_bytes() long); complete after Wait().
  virtual absl::Status Store(const DevicePage& page, std::span<std::byte> payload) = 0;

  // Returns when every Load and Store begun before is complete; reports the first failure among them.
  virtual absl::Status Wait() = 0;

  virtual void Free(const DevicePage& page) = 0;
};

}  // namespace kvist
