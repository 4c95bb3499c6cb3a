// Brings the index's blocks into the summary while the store is already in use: readiness does not wait for a scan of
// millions of entries. Until that is done,
//   - a lookup that the summary cannot answer goes to the index, and what it finds is taken into the summary (Load);
//   - nothing is written, moved or reclaimed: how full segments are is not known yet. Writers wait (core.loaded).
// A block removed meanwhile is remembered (core.gone), so that its entry, still in the index, is not taken for it.
// Private to the tier. Thread safety: any thread.
#pragma once

#include <atomic>
#include <functional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "cachestore/tier/nvme_core.h"

namespace kvist {

class BlockLoader {
 public:
  using Visit = std::function<void(const BlockKey&, const BlockEntry&)>;

  // `core`, which RecoverNvme has filled, must outlive this.
  explicit BlockLoader(NvmeCore* core) : core_(*core) {}
  ~BlockLoader() { Stop(); }

  void Start();
  // Gives up what is not loaded yet; core.load_status says so.
  void Stop();

  // Whether loading ended within `wait`, well or not.
  bool WaitFor(absl::Duration wait) const { return core_.loaded.WaitForNotificationWithTimeout(wait); }
  // At once if it has ended; else on the loader's thread.
  void WhenLoaded(absl::AnyInvocable<void()> done);

  // Those of `keys` that the index knows are in the summary when this returns. Reads from the disk.
  void Load(std::span<const BlockKey> keys);
  // Calls `visit` for each block that comes into the summary from now on by loading; some it may see twice.
  void Watch(Visit visit);

 private:
  using Items = std::vector<ResidentSummary::Item>;

  absl::Status Run();
  absl::Status LoadAll();
  // Into the summary, those that hold and aren't there; the others are dropped. False if loading has ended.
  bool Take(const Items& items);
  bool Holds(const BlockEntry& entry) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_.mutex);
  void ResumeSegment() ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_.mutex);

  NvmeCore& core_;
  std::atomic<bool> stop_ = false;
  std::thread thread_;

  absl::Mutex mutex_;
  std::vector<Visit> watchers_ ABSL_GUARDED_BY(mutex_);
  std::vector<absl::AnyInvocable<void()>> waiting_ ABSL_GUARDED_BY(mutex_);
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace kvist
