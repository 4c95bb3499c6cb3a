// The first half of the tier's write path: a bounded queue, and one thread that gives records their places, submits
// them in groups and hands those to the committer (nvme_committer.h), which makes them durable while the next are
// written. The thread also makes room, evicting and cleaning; that only while no record is under way. Private to the
// tier. Thread safety: any thread.
#pragma once

#include <deque>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "cachestore/tier/nvme_committer.h"
#include "cachestore/tier/nvme_core.h"
#include "cachestore/tier/nvme_space_maker.h"
#include "cachestore/tier/write_group.h"

namespace kvist {

class NvmeWriter {
 public:
  // `core` must outlive this.
  explicit NvmeWriter(NvmeCore* core)
      : core_(*core),
        space_maker_(core),
        committer_(core, {.ended = [this](const WriteItem& item) { Ended(item); },
                          .busy = [this] { space_maker_.PrepareSegment(); }}) {}
  ~NvmeWriter() { Stop(); }

  // `newest_sequence`: that any record in the store may have.
  void Start(std::uint64_t newest_sequence);
  // Completes what is queued, persists touches; refuses what comes later.
  void Stop();

  // As NvmeTier::Write and Flush.
  void Write(const NvmeBlock& block, std::span<std::byte> record, DoneStatus done);
  void Flush(DoneStatus done);

  // There are deletes or touches to persist soon.
  void Wake() { committer_.Wake(); }

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
  using Item = WriteItem;

  absl::Status Refusal(const NvmeBlock& block, std::span<std::byte> record) const;
  bool HasWork() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !queue_.empty() || stopping_; }
  void Run();
  // The next items that fit the open segment, or a lone flush. Waits for what is under way if there is no room.
  std::unique_ptr<WriteGroup> TakeGroup();
  absl::Status Admission(const Item& item) const ABSL_LOCKS_EXCLUDED(mutex_);
  bool Append(Item& item);
  // Stamps the placed ones, neighbours in one transfer.
  static void PrepareTransfers(WriteGroup& group);
  void Ended(const Item& item) ABSL_LOCKS_EXCLUDED(mutex_);

  NvmeCore& core_;
  NvmeSpaceMaker space_maker_;  // the thread's

  mutable absl::Mutex mutex_;
  std::deque<std::unique_ptr<Item>> queue_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<BlockKey, Item*> pending_ ABSL_GUARDED_BY(mutex_);  // queued or under way
  std::uint64_t sequence_ ABSL_GUARDED_BY(mutex_) = 0;                    // the last one given out
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;

  NvmeCommitter committer_;  // its thread calls Ended
  std::thread thread_;
};

}  // namespace kvist
