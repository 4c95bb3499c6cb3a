// DirectoryTier: an ObjectTier in a shared folder. SharedFolder's blocking operations, run by a DeadlinePool.
//
// The folder may be away when the tier is opened, go, and come back: meanwhile every operation fails, each as soon as
// it can be known, and what is in the folder is missed. Thread safety: any thread, as ObjectTier.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cachestore/io/clock.h"
#include "cachestore/io/file.h"
#include "cachestore/shared/folder_health.h"
#include "cachestore/shared/object_tier.h"

namespace kvist {

struct DirectoryTierOptions {
  std::string directory;  // must exist; made a shared folder if it is empty
  bool sync = true;       // each object is on stable storage before it appears
  std::size_t threads = 8;
  absl::Duration open_timeout = absl::Seconds(5);
  absl::Duration write_timeout = absl::Seconds(30);  // of Put and Refresh; nobody waits for them
  absl::Duration drop_timeout = absl::Seconds(10);   // of DropNamespace: one rename per bucket
  absl::Duration sweep_timeout = absl::Seconds(60);
  absl::Duration close_timeout = absl::Seconds(1);    // for operations under way at the end
  absl::Duration bucket_list_age = absl::Seconds(2);  // how late a bucket that another machine made is noticed
  FolderHealth::Options health = {};
  std::shared_ptr<FileSystem> file_system = nullptr;  // null: the real one. Shared with threads that may be stuck
  const Clock* clock = nullptr;                       // required; must outlive the tier
};

class DirectoryTier {
 public:
  // `own`: the secret of the caller's store, if that exists already; then the folder need not answer now. Errors:
  // FailedPrecondition (another secret, not a shared folder, other format), DataLoss (its secret is damaged), and,
  // without `own`, DeadlineExceeded or whatever keeps the folder from being entered. Messages name the remedy.
  static absl::StatusOr<std::unique_ptr<ObjectTier>> Open(const DirectoryTierOptions& options,
                                                          const std::optional<KeyHasher::Secret>& own);
};

}  // namespace kvist
