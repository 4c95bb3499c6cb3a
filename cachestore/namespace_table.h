// NamespaceTable: the namespaces a store knows. They are few and never forgotten while the store is open.
// Thread safety: any thread; what Find yields lives as long as the table.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "cachestore/prefix_store.h"
#include "cachestore/tier/block_record.h"
#include "cachestore/tier/nvme_tier.h"

namespace kvist {

struct KnownNamespace {
  Namespace ns;
  RecordShape shape;
  std::atomic<absl::Duration> ttl;
  std::atomic<absl::Time> last_used = absl::InfinitePast();

  absl::Time Use(absl::Time now) {  // notes the use; yields the expiry that follows from it
    last_used = now;
    return now + ttl.load();
  }
};

class NamespaceTable {
 public:
  NamespaceTable(NvmeTier* nvme, absl::Duration default_ttl);

  // Finds or creates; durable when it returns. A ttl that differs from the known one replaces it.
  absl::StatusOr<KnownNamespace*> Open(const NamespaceSpec& spec, const NamespaceOptions& options,
                                       const NamespaceId& id);
  // NotFound if unknown.
  absl::StatusOr<KnownNamespace*> Find(const NamespaceId& id) const;
  std::vector<KnownNamespace*> All() const;

 private:
  KnownNamespace* Add(const Namespace& ns, absl::Duration ttl) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  NvmeTier* const nvme_;
  const absl::Duration default_ttl_;
  mutable absl::Mutex mutex_;
  absl::flat_hash_map<NamespaceId, std::unique_ptr<KnownNamespace>> known_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace kvist
