// WriteBack: brings committed blocks from DRAM to NVMe.
//
// Rule: a block is durable when its record and all records above it in its chain are. So parents are submitted before
// children, and a child is acknowledged only after its parent, even though both may be in flight together. If a
// parent's write fails its children fail with it, and what was written of them is taken back, so that whatever is on
// NVMe hangs together.
//
// Bounded: at most kInFlightMax writes are with the tier; the others wait here, each holding its DRAM slot, so there
// are never more than DRAM holds.
// Thread safety: any thread. The tiers must outlive it; Flush before destruction.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "cachestore/movement/worker.h"
#include "cachestore/prefix_store.h"
#include "cachestore/tier/dram_tier.h"
#include "cachestore/tier/nvme_tier.h"

namespace kvist {

// Expiry as it is stored below DRAM: whole seconds, rounded up so that nothing expires early.
std::int64_t ExpiryToUnixSeconds(absl::Time expires);
inline bool ExpiredBelow(const NvmeBlock& block, absl::Time now) {
  return block.pins == 0 && absl::FromUnixSeconds(block.expires_unix_s) <= now;
}

class WriteBack {
 public:
  // Below NvmeTierOptions::write_queue_limit's default, so that its queue is never what refuses a block.
  static constexpr std::size_t kInFlightMax = 2048;

  // `on_durable` (may be null) is called for each block that has become so, and must not block.
  using OnDurable = std::function<void(const DramBlock&)>;
  WriteBack(std::shared_ptr<DramTier> dram, NvmeTier* nvme, Worker* worker, OnDurable on_durable = nullptr)
      : dram_(std::move(dram)), nvme_(nvme), worker_(worker), on_durable_(std::move(on_durable)) {}

  // Makes a published block durable, and first whatever above it isn't. `done` (may be null) runs when it is, or can't
  // be: NotFound if its parent is gone, otherwise as NvmeTier::Write.
  void Enqueue(const DramBlockRef& block, DoneStatus done);

  // Gives up what matches and isn't with the tier yet; the rest finishes.
  void Cancel(const std::function<bool(const NamespaceId&)>& matches);

  // Completes when every write begun before has; with the first error among them.
  void Flush(DoneStatus done);

  std::uint64_t pending() const;
  std::uint64_t failed() const;

 private:
  struct Write;
  using WriteRef = std::shared_ptr<Write>;
  struct Write {
    DramBlockRef block;  // null once resolved
    std::vector<DoneStatus> waiters;
    std::vector<WriteRef> children;             // of those under way
    absl::Time expires = absl::InfinitePast();  // as submitted
    std::optional<absl::Status> own;            // how its record's write ended
    absl::Status above = absl::OkStatus();      // how its parent's ended
    bool parent_pending = false;
    bool submitted = false;
    bool to_take_back = false;  // written by us; would be left hanging if its parent fails
  };
  // What is left to do outside the lock.
  struct Outcome {
    std::vector<std::pair<DoneStatus, absl::Status>> calls;
    std::vector<std::pair<BlockKey, absl::Time>> touches;  // used again while being written
    std::vector<WriteRef> take_back;
    std::vector<DramBlockRef> durable;
  };

  // Whether the block's chain is on NVMe up to its root.
  bool ChainBelow(const NamespaceId& ns, BlockKey key) const;
  // Adds `block` and the ancestors that need it. Null if that can't be done: it or its parent is gone.
  WriteRef Add(const DramBlockRef& block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Pump() ABSL_LOCKS_EXCLUDED(mutex_);
  void Submit(const WriteRef& write) ABSL_LOCKS_EXCLUDED(mutex_);
  void OnWritten(const WriteRef& write, absl::Status status) ABSL_LOCKS_EXCLUDED(mutex_);
  // Ends `first` if its own write and its parent's have, then its children likewise.
  void Resolve(WriteRef first, Outcome& outcome) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status FinalStatus(const Write& write) const;
  void Carry(Outcome outcome) ABSL_LOCKS_EXCLUDED(mutex_);

  const std::shared_ptr<DramTier> dram_;
  NvmeTier* const nvme_;
  Worker* const worker_;
  const OnDurable on_durable_;
  mutable absl::Mutex mutex_;
  absl::flat_hash_map<BlockKey, WriteRef> writes_ ABSL_GUARDED_BY(mutex_);  // not resolved yet
  std::deque<WriteRef> queue_ ABSL_GUARDED_BY(mutex_);                      // not submitted yet
  std::size_t in_flight_ ABSL_GUARDED_BY(mutex_) = 0;
  std::uint64_t failed_ ABSL_GUARDED_BY(mutex_) = 0;
  bool pumping_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace kvist
