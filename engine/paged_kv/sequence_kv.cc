#include "engine/paged_kv/sequence_kv.h"

#include <utility>

#include "fmt/format.h"

namespace kvist::engine {

void SequenceKv::Clear() {
  for (const DevicePage& page : kv_.pages) device_->Free(page);
  kv_.pages.clear();
  adopted_ = 0;
  lease_ = Lease();
}

absl::Status SequenceKv::Adopt(Lease lease) {
  for (const Lease::Block& block : lease.blocks()) {
    absl::StatusOr<DevicePage> page =
        block.payload.size() == device_->page_bytes()
            ? device_->Load(block.payload)
            : absl::InternalError(
                  fmt::format("leased payload of {} bytes, page of {}", block.payload.size(), device_->page_bytes()));
    if (!page.ok()) {
      // Copies already begun read the lease's memory: let them end before it is released.
      (void)device_->Wait();
      Clear();
      return page.status();
    }
    kv_.pages.push_back(*page);
  }
  adopted_ = kv_.pages.size();
  lease_ = std::move(lease);
  return absl::OkStatus();
}

absl::Status SequenceKv::Grow(std::size_t tokens) {
  while (kv_.capacity_tokens() < tokens) {
    absl::StatusOr<DevicePage> page = device_->Allocate();
    if (!page.ok()) return page.status();
    kv_.pages.push_back(*page);
  }
  return absl::OkStatus();
}

}  // namespace kvist::engine
