// SequenceKv: the KV of one sequence while it is computed. Its first pages are blocks leased from the store (read-only,
// not copied on the host), the rest are the device pool's own; all go back on destruction.
// Not thread-safe.
#pragma once

#include <cstddef>

#include "absl/status/status.h"
#include "cachestore/prefix_store.h"
#include "cachestore/tier/device_tier.h"
#include "engine/paged_kv/kv_pages.h"

namespace kvist::engine {

class SequenceKv {
 public:
  // `device` must outlive it.
  SequenceKv(DeviceTier* device, std::size_t page_tokens) : device_(device) { kv_.page_tokens = page_tokens; }
  ~SequenceKv() { Clear(); }
  SequenceKv(const SequenceKv&) = delete;
  SequenceKv& operator=(const SequenceKv&) = delete;

  // Adopts the leased blocks as the first pages; once, before Grow. Begins their loading: WaitLoaded before computing.
  // On error nothing is adopted and the sequence is as it was.
  absl::Status Adopt(Lease lease);
  // Gives all pages and the lease back.
  void Clear();
  absl::Status WaitLoaded() { return device_->Wait(); }

  // Own pages until `tokens` fit. ResourceExhausted when the pool is empty.
  absl::Status Grow(std::size_t tokens);

  KvPages& pages() { return kv_; }
  std::size_t adopted_tokens() const { return adopted_ * kv_.page_tokens; }

 private:
  DeviceTier* device_;
  Lease lease_;
  std::size_t adopted_ = 0;
  KvPages kv_;
};

}  // namespace kvist::engine
