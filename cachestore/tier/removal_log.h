// REMOVALS: which records in the segments do not count any more, though they are whole and their segment was not
// written again since. The index knows without it; a rebuilt index would bring evicted and expired blocks back.
// (Explicit drops do not depend on it: see NamespaceEntry::dropped_through.)
//
// It is appended to after the index has durably forgotten a record, and not synced: evictions must stay cheap, and
// what a power failure takes from it is a block that a rebuild finds again. Written on a best effort, for the same
// reason: a failure is logged once and costs exactness of a rebuild only.
//
// Thread safety: one thread at a time (the NVMe tier's index_mutex).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cachestore/io/file.h"

namespace kvist {

struct RemovedExtent {
  enum class Kind : std::uint32_t {
    kRecord = 1,   // the record in [begin, end)
    kFormat1 = 2,  // any record without a sequence number (format 1 wrote those) that begins in [begin, end)
  };
  Kind kind = Kind::kRecord;
  std::uint64_t segment = 0;
  std::uint64_t generation = 0;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  friend bool operator==(const RemovedExtent&, const RemovedExtent&) = default;
};

struct RemovalLogContents {
  std::vector<RemovedExtent> removals;
  std::uint64_t bytes = 0;    // of whole entries, damaged ones included, and the head
  std::uint64_t damaged = 0;  // entries whose checksum does not match
  bool head_damaged = false;  // then nothing else was read
};

class RemovalLog {
 public:
  // Opens or creates; cuts an append that a crash interrupted. A damaged head is replaced (what it listed is lost).
  // `after_crash`: damaged entries are what a power failure left of unsynced ones, and are left out; otherwise they
  // stay for fsck to find.
  static absl::StatusOr<std::unique_ptr<RemovalLog>> Open(FileSystem* fs, const std::string& path, bool after_crash);

  void Append(std::span<const RemovedExtent> removals);
  // Whether so much was appended since the last Compact that it is worth doing again.
  bool wants_compaction() const;
  // Forgets removals in generations that are over: `current(segment, generation)` says which are not.
  absl::Status Compact(const std::function<bool(std::uint64_t segment, std::uint64_t generation)>& current);

  std::uint64_t bytes() const { return bytes_; }

 private:
  RemovalLog(FileSystem* fs, std::string path) : fs_(*fs), path_(std::move(path)) {}
  absl::Status Reopen();

  FileSystem& fs_;
  const std::string path_;
  std::unique_ptr<File> file_;
  std::uint64_t bytes_ = 0;
  std::uint64_t compacted_bytes_ = 0;
  bool complained_ = false;
};

// NotFound if there is none.
absl::StatusOr<RemovalLogContents> ReadRemovalLog(FileSystem& fs, const std::string& path);
// All of it anew: durable, and all or nothing.
absl::Status WriteRemovalLog(FileSystem& fs, const std::string& path, std::span<const RemovedExtent> removals);

}  // namespace kvist
