// What the crash test's worker and its judge agree on: the store's sizes, its tenants, and what the worker says.
//
// Each thread of the worker has tenants of its own, so that what it says of one is in order:
//   acked TENANT SEED BLOCK   that block of chain TestChain(SEED) is durable
//   dropping TENANT           from now on any of it may be gone
//   dropped TENANT            all acked before is gone
//   wrong TEXT                a hit held other bytes than were put
#pragma once

#include <cstdint>
#include <string>

#include "cachestore/local_store.h"
#include "tests/conformance/test_chain.h"

namespace kvist::crash {

inline constexpr int kThreads = 3;
inline constexpr int kTenantsPerThread = 2;
inline constexpr int kTenants = kThreads * kTenantsPerThread;
inline constexpr std::uint32_t kSeeds = 24;  // chains of each tenant
inline constexpr std::size_t kBlocks = 5;    // of each chain
// This one's blocks expire while the load runs.
inline constexpr int kBriefTenant = 1;

inline NamespaceSpec SpecOf(int tenant) {
  NamespaceSpec spec = TestSpec();
  spec.tenant = "tenant-" + std::to_string(tenant);
  spec.layers = 2;
  spec.layer_bytes = 5000;  // a record takes 16 KiB
  return spec;
}

inline NamespaceOptions RetentionOf(int tenant) {
  return {.ttl = tenant == kBriefTenant ? absl::Minutes(30) : absl::Hours(24 * 365)};
}

// Tight: a third of all chains. Ample: all of them several times, so that nothing is ever evicted.
inline LocalStoreOptions OptionsOf(const std::string& directory, bool tight, const Clock* clock) {
  LocalStoreOptions options;
  options.nvme.directory = directory;
  options.nvme.segment_bytes = 256 << 10;
  options.nvme.capacity_bytes = (tight ? 16 : 256) * options.nvme.segment_bytes;
  options.dram_bytes = 1 << 20;
  options.clock = clock;
  return options;
}

}  // namespace kvist::crash
