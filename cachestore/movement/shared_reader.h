// SharedReader: what the store asks of the shared tier for hits, within deadlines, and what it remembers so that misses
// stay cheap: a key that wasn't there is not asked for again for a while.
// Thread safety: any thread. The tier and the clock must outlive it.
#pragma once

#include <cstddef>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "cachestore/io/clock.h"
#include "cachestore/shared/object_tier.h"

namespace kvist {

class SharedReader {
 public:
  struct Options {
    absl::Duration timeout = absl::Seconds(2);         // of one operation
    absl::Duration chain_timeout = absl::Seconds(10);  // of all that one Acquire asks for
    absl::Duration absent_age = absl::Seconds(3);      // how late another store's new block may be noticed
  };
  // Keys remembered as absent; all are forgotten when there are more.
  static constexpr std::size_t kAbsentMax = 65536;

  SharedReader(ObjectTier* tier, const Clock* clock, const Options& options)
      : tier_(tier), clock_(clock), options_(options) {}

  const Options& options() const { return options_; }

  // How many of the first of `keys` seem to be there: 0 if that can't be known in time.
  void CountPresent(const NamespaceId& ns, std::vector<BlockKey> keys, Done<std::size_t> done);
  // As ObjectTier::Get; `time_left` of the chain's.
  void Get(const ObjectName& name, OwnedBytes into, absl::Duration time_left, DoneStatus done);

  // Nothing of these namespaces is read until as many CloseGate calls are undone.
  void CloseGate(const std::vector<NamespaceId>& namespaces);
  void OpenGate(const std::vector<NamespaceId>& namespaces);
  // Nothing is read any more.
  void Close();

 private:
  bool MayRead(const NamespaceId& ns) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void NoteAbsent(const BlockKey& key);

  ObjectTier* const tier_;
  const Clock* const clock_;
  const Options options_;
  mutable absl::Mutex mutex_;
  absl::flat_hash_map<BlockKey, absl::Duration> absent_ ABSL_GUARDED_BY(mutex_);  // until then (monotonic)
  absl::flat_hash_map<NamespaceId, int> gates_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace kvist
