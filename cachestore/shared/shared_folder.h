// SharedFolder: objects in a folder that many machines mount (NFS, 3FS, Lustre) or that several stores on one share.
// The plain, blocking operations of DirectoryTier, which runs them on threads that may get stuck; nothing here is
// locked while the file system is asked.
//
//   DIR/cluster/FORMAT    text, one line: "kvist shared folder, format 1"
//   DIR/cluster/SECRET    the secret of all keys
//   DIR/objects/BUCKET/NAMESPACE/XX/KEY    one record; its modification time is its expiry
//   DIR/incoming/WRITER/  files being written
//   DIR/trash/            what was dropped or has expired, being removed
//
// Nobody locks anything. What holds it together:
// - `cluster` appears by the rename of a full directory, which only the first succeeds in.
// - An object appears by the rename of a whole file. Writers of one name write the same bytes, so the last may win.
// - Objects move only to later buckets, and readers look from early to late: one that moves is not overlooked.
// - A bucket, or a namespace in it, vanishes by one rename into `trash`; whoever comes too late finds nothing: a miss.
//
// A mount point whose file system is not mounted looks like an empty folder: without `cluster`, nothing is written.
// Thread safety: any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "cachestore/io/file.h"
#include "cachestore/shared/object_tier.h"

namespace kvist {

class SharedFolder {
 public:
  // One sweep removes this many entries at most, so that it ends within its time.
  static constexpr std::size_t kSweepEntriesMax = 4096;
  // Files being written for longer than this are a dead writer's.
  static constexpr absl::Duration kLeftoverAge = absl::Hours(1);

  struct Options {
    std::string directory;
    bool sync = true;                                   // each object is on stable storage before it appears
    absl::Duration bucket_list_age = absl::Seconds(2);  // how late a bucket that another machine made is noticed
  };

  SharedFolder(std::shared_ptr<FileSystem> fs, Options options);

  // Enters the folder, and makes it a shared folder if it is empty. `own`: the caller's secret, if it has one already.
  // FailedPrecondition: the folder has another, or is something else; nothing was changed. Yields the folder's secret.
  absl::StatusOr<KeyHasher::Secret> Enter(const std::optional<KeyHasher::Secret>& own);
  bool entered() const { return entered_; }
  // The caller has gone: a call of Enter that is stuck founds nothing when it comes back.
  void Abandon() { abandoned_ = true; }

  // `now` is the caller's wall clock. The others as in ObjectTier.
  absl::Status Get(const ObjectName& name, std::span<std::byte> into, absl::Time now);
  absl::StatusOr<std::size_t> CountPresent(const NamespaceId& ns, std::span<const BlockKey> chain, absl::Time now);
  absl::Status Put(const ObjectName& name, const ObjectRecord& record, absl::Time expires, absl::Time now);
  absl::Status Refresh(const ObjectName& name, absl::Time expires, absl::Time now);
  absl::Status DropNamespace(const NamespaceId& ns);
  absl::Status Sweep(absl::Time now);

 private:
  struct Found {
    std::string path;
    std::string bucket;
    FileInfo info;
  };

  std::string Path(std::string_view below) const;
  // Makes a founding beside it and tries to rename it to `cluster`.
  absl::Status FoundCluster(const KeyHasher::Secret& secret);
  // NotFound if there is no cluster.
  absl::StatusOr<KeyHasher::Secret> ReadCluster();
  absl::Status CheckNothingForeign();

  // Oldest first.
  absl::StatusOr<std::vector<std::string>> Buckets(bool fresh);
  // The bucket last used.
  void NoteBucket(const std::string& bucket);
  std::string LastBucket();
  // NotFound if absent or expired. `accept` may refuse a candidate by NotFound (it moved away); the search goes on.
  absl::Status Search(const ObjectName& name, absl::Time now, const std::function<absl::Status(const Found&)>& accept);
  // Renames to a place in `bucket`, making its directories if need be.
  absl::Status MoveIn(const std::string& from, const ObjectName& name, const std::string& bucket);
  absl::Status WriteIncoming(const std::string& path, const ObjectRecord& record, absl::Time expires);
  // Out of sight at once; NotFound if it isn't there.
  absl::Status ToTrash(const std::string& path);
  // Removes a tree as far as `budget` allows.
  absl::Status RemoveTree(const std::string& path, std::size_t& budget);
  absl::Status RemoveLeftovers(absl::Time now, std::size_t& budget);
  std::string UniqueName();

  const std::shared_ptr<FileSystem> fs_;
  const Options options_;
  const std::uint64_t writer_;  // random: one per opened folder
  std::atomic<std::uint64_t> next_ = 0;
  std::atomic<bool> entered_ = false;
  std::atomic<bool> abandoned_ = false;

  absl::Mutex mutex_;
  std::vector<std::string> buckets_ ABSL_GUARDED_BY(mutex_);
  std::string last_bucket_ ABSL_GUARDED_BY(mutex_);
  absl::Duration listed_ ABSL_GUARDED_BY(mutex_) = -absl::InfiniteDuration();  // monotonic
};

}  // namespace kvist
