// The tier's write path: a bounded queue and one thread that commits in groups: data of all, one fdatasync, one index
// batch, then all acknowledgements. It also does what must not happen on a caller's or an I/O thread: eviction and
// cleaning, deletes left by bad reads, persisting touches.
// Private to the tier. Thread safety: any thread.
#pragma once

#include <deque>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "cachestore/tier/nvme_core.h"
#include "cachestore/tier/nvme_space_maker.h"

namespace kvist {

class NvmeWriter {
 public:
  // `core` must outlive this.
  explicit NvmeWriter(NvmeCore* core) : core_(*core), space_maker_(core) {}
  ~NvmeWriter() { Stop(); }

  // `newest_sequence`: that any record in the store may have.
  void Start(std::uint64_t newest_sequence);
  // Completes what is queued, persists touches; refuses what comes later.
  void Stop();

  // As NvmeTier::Write and Flush.
  void Write(const NvmeBlock& block, std::span<std::byte> record, DoneStatus done);
  void Flush(DoneStatus done);

  // There are deletes or touches to persist soon.
  void Wake();

  // Writes not yet committed whose blocks this selects end with Cancelled and never become resident. The caller holds
  // core.index_mutex, so none is between decision and commit.
  // Yields the newest sequence number given out: all of the cancelled have it or a lower one, all later ones a higher.
  template <typename Selects>
  std::uint64_t Cancel(Selects selects) ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_.index_mutex) {
    absl::MutexLock lock(&mutex_);
    for (auto& [key, item] : pending_) {
      if (selects(item->block)) item->cancelled = true;
    }
    return sequence_;
  }

  std::uint64_t pending() const;

 private:
  struct Item {
    NvmeBlock block;
    std::uint64_t sequence = 0;
    std::span<std::byte> record;
    std::vector<DoneStatus> done;  // [0]: the writer's; the rest: duplicates that came meanwhile
    bool flush = false;            // not a write: a point to flush at
    bool cancelled = false;
    // While in a group:
    ExtentStamp extent;
    Segment* segment = nullptr;  // set once placed
    IoRequest io;
    absl::Status status;
  };
  using Group = std::vector<std::unique_ptr<Item>>;

  absl::Status Refusal(const NvmeBlock& block, std::span<std::byte> record) const;
  bool HasWork() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !queue_.empty() || woken_ || stopping_; }
  void Run();
  // The next items that fit the open segment, or a lone flush; sets aside (status) what cannot be placed.
  Group TakeGroup();
  std::unique_ptr<Item> PopFront();
  bool Place(Item& item, bool first);
  void CommitGroup(Group& group);
  void WriteData(Group& group);
  void SyncData(Group& group);
  void CommitIndex(Group& group);
  void GiveBackSpace(Group& group);
  void Finish(Group group);
  absl::Status PersistTouches(IndexSync sync);
  absl::Status CompactRemovals() ABSL_LOCKS_EXCLUDED(core_.index_mutex);
  void Housekeep();

  NvmeCore& core_;
  NvmeSpaceMaker space_maker_;  // the thread's

  mutable absl::Mutex mutex_;
  std::deque<std::unique_ptr<Item>> queue_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<BlockKey, Item*> pending_ ABSL_GUARDED_BY(mutex_);  // queued or in the group
  std::uint64_t sequence_ ABSL_GUARDED_BY(mutex_) = 0;                    // the last one given out
  std::size_t queued_writes_ ABSL_GUARDED_BY(mutex_) = 0;
  bool woken_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool device_failed_ ABSL_GUARDED_BY(mutex_) = false;

  // The thread's own.
  std::uint32_t sync_failures_ = 0;                  // in a row
  absl::Duration housekept_ = absl::ZeroDuration();  // monotonic, real time: paces I/O, decides nothing
  std::thread thread_;
};

}  // namespace kvist
