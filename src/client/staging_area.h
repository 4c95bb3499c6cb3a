// StagingArea: the slots of one connection's staging memory, first fit over coalescing free ranges.
// Thread safety: any thread. Slots keep the area, and so its mapping, alive.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "cachestore/prefix_store.h"
#include "src/protocol/mapping.h"

namespace kvist::client {

class StagingArea : public std::enable_shared_from_this<StagingArea> {
 public:
  // Page alignment: payloads are copied with wide loads, and an unused page costs no memory.
  static constexpr std::uint64_t kSlotAlignment = 4096;

  explicit StagingArea(protocol::Mapping memory);

  // ResourceExhausted when no free range is long enough.
  absl::StatusOr<WriteGrant> Allocate(const NamespaceId& ns, std::uint64_t bytes);

  // Where a grant of this area lies; nullopt if it is none of ours, or of another namespace.
  std::optional<std::uint64_t> OffsetOf(const WriteGrant& grant, const NamespaceId& ns) const;

 private:
  struct Slot;
  struct Used {
    std::uint64_t reserved = 0;  // rounded up to kSlotAlignment
    std::uint64_t bytes = 0;
    NamespaceId ns;
  };
  void Free(std::uint64_t offset);

  const protocol::Mapping memory_;
  mutable absl::Mutex mutex_;
  std::map<std::uint64_t, std::uint64_t> free_ ABSL_GUARDED_BY(mutex_);  // offset -> length
  std::map<std::uint64_t, Used> used_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace kvist::client
