// The second half of the tier's write path, with a thread of its own: waits for the data of a group, syncs it, puts it
// into the index and acknowledges it, while the groups behind it are being written (nvme_writer.h). Whatever is written
// when a sync begins goes with it, so groups grow as syncs get slower. It also does what else the index needs and must
// not happen on a caller's or an I/O thread: deletes left by bad reads, persisting touches.
//
// Order, per record: its data, an fdatasync that began after that, the index batch with its log synced,
// acknowledgement. After a failed fdatasync everything in flight to that segment fails: a later success would prove
// nothing. Private to the tier. Thread safety: any thread, but Submit and Drain are the writer's.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "cachestore/tier/nvme_core.h"
#include "cachestore/tier/write_group.h"

namespace kvist {

class NvmeCommitter {
 public:
  struct Hooks {
    // A record isn't pending any more; called before its `done`.
    std::function<void(const WriteItem&)> ended;
    // More is under way: a good time to do ahead what those would wait for.
    std::function<void()> busy;
  };
  // `core` must outlive this. The hooks are called on its thread.
  NvmeCommitter(NvmeCore* core, Hooks hooks) : core_(*core), hooks_(std::move(hooks)) {}
  ~NvmeCommitter() { Stop(); }

  void Start();
  // Completes what was submitted, persists touches.
  void Stop();

  // Submits the group's transfers and commits it behind those before it. Waits while enough are in flight.
  void Submit(std::unique_ptr<WriteGroup> group);
  // Returns when nothing is in flight.
  void Drain();

  // There are deletes or touches to persist soon.
  void Wake();

  // Too many syncs failed in a row: nothing may be written any more.
  bool device_failed() const;

 private:
  using Group = std::unique_ptr<WriteGroup>;
  using Items = std::vector<std::unique_ptr<WriteItem>>;

  bool HasRoom() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool IsIdle() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return groups_.empty() && !committing_; }
  bool IsWritten() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return !groups_.empty() && groups_.front()->writing == 0;
  }
  bool HasWork() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return IsWritten() || (groups_.empty() && (woken_ || stopping_));
  }

  void OnTransferred(WriteGroup* group, const WriteGroup::Transfer& transfer, const absl::Status& status);
  void Run();
  // The items of all groups at the front whose data is written, up to a flush; a flush alone.
  Items TakeWritten() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SyncData(Items& items);
  void CommitIndex(Items& items);
  void GiveBackSpace(Items& items);
  void Finish(Items items);
  absl::Status FlushIndex();
  absl::Status PersistTouches(IndexSync sync);
  absl::Status CompactRemovals() ABSL_LOCKS_EXCLUDED(core_.index_mutex);
  void Housekeep();

  NvmeCore& core_;
  const Hooks hooks_;

  mutable absl::Mutex mutex_;
  std::deque<Group> groups_ ABSL_GUARDED_BY(mutex_);  // submitted, oldest first
  bool committing_ ABSL_GUARDED_BY(mutex_) = false;
  bool woken_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool device_failed_ ABSL_GUARDED_BY(mutex_) = false;

  // The thread's own.
  std::uint32_t sync_failures_ = 0;                  // in a row
  absl::Duration housekept_ = absl::ZeroDuration();  // monotonic, real time: paces I/O, decides nothing
  std::thread thread_;
};

}  // namespace kvist
