// GrantTable: the write grants a store has given out. A commit's grant comes back through an interface that any store
// could have made it for, so a slot is believed only if it stands here.
// Thread safety: any thread. Lives as long as its last grant: always held by shared_ptr.
#pragma once

#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "absl/synchronization/mutex.h"
#include "cachestore/prefix_store.h"
#include "cachestore/tier/dram_tier.h"

namespace kvist {

class GrantTable : public std::enable_shared_from_this<GrantTable> {
 public:
  WriteGrant Issue(DramBlockRef block);
  // The block of a grant of ours, once; null for any other.
  DramBlockRef Take(const WriteGrant& grant);

 private:
  struct Slot {
    std::shared_ptr<GrantTable> table;
    DramBlockRef block;
    Slot(std::shared_ptr<GrantTable> in, DramBlockRef of) : table(std::move(in)), block(std::move(of)) {}
    ~Slot() { table->Forget(this); }
    Slot(const Slot&) = delete;
    Slot& operator=(const Slot&) = delete;
  };
  void Forget(const Slot* slot);

  absl::Mutex mutex_;
  absl::flat_hash_set<const void*> issued_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace kvist
