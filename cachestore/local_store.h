// LocalStore: the embedded PrefixStore over a DRAM arena, one store directory and, if there is one, a folder shared
// with other stores. Wiring only: what a block is stands in tier/block_record.h, what leaves a tier in retention/, what
// moves between tiers in movement/.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cachestore/io/clock.h"
#include "cachestore/movement/shared_reader.h"
#include "cachestore/prefix_store.h"
#include "cachestore/shared/directory_tier.h"
#include "cachestore/tier/nvme_tier.h"

namespace kvist {

struct SharedTierOptions {
  DirectoryTierOptions folder;  // no shared tier if its directory is empty; its clock is set from the store's
  SharedReader::Options read;
  absl::Duration drain_timeout = absl::Seconds(5);  // at closing, for what waits to be written there
};

struct LocalStoreOptions {
  NvmeTierOptions nvme;  // its clock and eviction are set from those below
  SharedTierOptions shared;
  std::uint64_t dram_bytes = std::uint64_t{1} << 30;  // the arena; all of it, headers included
  EvictionKind eviction = kDefaultEviction;           // in DRAM and on NVMe
  absl::Duration ttl = absl::Hours(72);               // sliding, from last use; a namespace may set its own
  const Clock* clock = nullptr;                       // null: the system's; must outlive the store
};

class LocalStore : public PrefixStore {
 public:
  // Errors as NvmeTier::Open and DirectoryTier::Open, and ResourceExhausted if the arena cannot be made. A store that
  // is made by this call takes over the shared folder's key secret; one that exists must have the same.
  static absl::StatusOr<std::unique_ptr<LocalStore>> Open(const LocalStoreOptions& options);

  // For the daemon: the arena's memfd (sealed against resizing and against new writable mappings, so it can be handed
  // to clients), its size, and where a leased payload lies in it.
  virtual int arena_fd() const = 0;
  virtual std::uint64_t arena_bytes() const = 0;
  virtual std::uint64_t ArenaOffset(std::span<const std::byte> payload) const = 0;

  // Completes when what was durable before is in the shared tier, or given up; at once without one. (Flush does not
  // wait for the shared tier, which may be slow or gone.)
  virtual void FlushShared(const CallOptions& options, DoneStatus done) = 0;

  // Expires what is due; runs by itself once a minute, and whenever a test advances its clock and calls it.
  virtual absl::Status Sweep() = 0;
};

}  // namespace kvist
