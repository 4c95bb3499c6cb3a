// SharedWriteBack: brings durable blocks to the shared tier, and keeps alive there what is used here. Nobody waits for
// it, and it holds neither DRAM nor a put: the queue holds keys, and a block that has left both tiers before its turn
// is not written.
//
// Each block is first refreshed, which is a look whether it is there: most blocks that many machines compute are.
// Bounded: kQueueMax keys wait; more are dropped (newest first, so that what is written of a chain is its beginning)
// and counted. A dropped block is offered again when it is next used. Thread safety: any thread. What it is given must
// outlive it; Close before the tiers go.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "cachestore/io/clock.h"
#include "cachestore/movement/join.h"
#include "cachestore/shared/object_tier.h"
#include "cachestore/tier/dram_tier.h"
#include "cachestore/tier/nvme_tier.h"

namespace kvist {

class SharedWriteBack {
 public:
  static constexpr std::size_t kQueueMax = 65536;
  // As many as the tier gives threads to writers.
  static constexpr std::size_t kInFlightMax = 4;
  // Blocks whose expiry in the shared tier is remembered, to spare refreshes; all are forgotten when there are more.
  static constexpr std::size_t kKnownMax = std::size_t{1} << 18;
  // A use is worth a refresh if it adds this share of what is left of a block's life.
  static constexpr int kRefreshShare = 16;

  SharedWriteBack(std::shared_ptr<DramTier> dram, NvmeTier* nvme, ObjectTier* shared, const Clock* clock)
      : dram_(std::move(dram)), nvme_(nvme), shared_(shared), clock_(clock) {}

  // These blocks of `ns` were stored or used here, and live until `expires`.
  void Offer(const NamespaceId& ns, std::span<const BlockKey> keys, absl::Time expires);

  // Completes when all that is queued now is written, or dropped.
  void Flush(DoneStatus done);

  // Gives up what waits of these namespaces, and takes no more of them until OpenGate; `settled` runs when nothing of
  // them is being written.
  void CloseGate(const std::vector<NamespaceId>& namespaces, DoneStatus settled);
  void OpenGate(const std::vector<NamespaceId>& namespaces);

  // Gives up everything: no tier is called after this.
  void Close();

  std::uint64_t pending() const;
  std::uint64_t dropped() const;

 private:
  struct Item {
    ObjectName name;
    absl::Time expires;
    std::vector<std::shared_ptr<Join>> waiters;
  };
  using ItemRef = std::shared_ptr<Item>;

  void Pump() ABSL_LOCKS_EXCLUDED(mutex_);
  void OnRefreshed(const ItemRef& item, const absl::Status& status);
  void PutFromDram(const ItemRef& item, const DramBlockRef& block);
  void PutFromNvme(const ItemRef& item);
  void Put(const ItemRef& item, ObjectRecord record);
  void End(const ItemRef& item, const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);
  // A step calls a tier; none begins after Close, and Close waits for those under way. They don't block.
  bool BeginStep() ABSL_LOCKS_EXCLUDED(mutex_);
  void EndStep() ABSL_LOCKS_EXCLUDED(mutex_);

  const std::shared_ptr<DramTier> dram_;
  NvmeTier* const nvme_;
  ObjectTier* const shared_;
  const Clock* const clock_;
  mutable absl::Mutex mutex_;
  absl::flat_hash_map<BlockKey, ItemRef> items_ ABSL_GUARDED_BY(mutex_);  // queued and in flight
  std::deque<ItemRef> queue_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<BlockKey, absl::Time> known_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<NamespaceId, int> gates_ ABSL_GUARDED_BY(mutex_);
  std::size_t in_flight_ ABSL_GUARDED_BY(mutex_) = 0;
  std::size_t steps_ ABSL_GUARDED_BY(mutex_) = 0;
  std::uint64_t dropped_ ABSL_GUARDED_BY(mutex_) = 0;
  bool pumping_ ABSL_GUARDED_BY(mutex_) = false;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace kvist
