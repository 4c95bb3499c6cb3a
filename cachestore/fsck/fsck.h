// fsck: checks a closed store directory against itself, and restores it to a consistent one. Nothing is believed:
// every index entry is compared with its record, every byte that a hit could return with its checksum.
//
// A problem is what a crash cannot leave behind. What it can (a half-made file, records that were never acknowledged)
// is a note: the next opening deals with it.
//
// Repair drops what is bad and nothing else. A rebuild makes the index anew from the records in the segments: the same
// blocks with the same bytes. Not to be had from records alone: last uses (their order of writing stands in), expiries
// extended after the record was written (the record's own counts), pins. They are kept where the old index is readable.
//
// Thread safety: one call at a time per directory; it takes the store's lock.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "cachestore/io/file.h"
#include "cachestore/key/digest.h"

namespace kvist {

struct FsckOptions {
  std::string directory;
  bool repair = false;
  bool rebuild_index = false;         // also when nothing is wrong with it
  FileSystem* file_system = nullptr;  // null: the real one
  // Called now and then with the work done so far, in bytes of segments.
  std::function<void(std::uint64_t done, std::uint64_t total)> progress = nullptr;
};

struct FsckProblem {
  std::string path;
  std::optional<std::uint64_t> offset;  // in that file
  std::optional<BlockKey> block;
  std::string what;
  std::string consequence;  // without repair
  bool repaired = false;
};

struct FsckReport {
  std::vector<FsckProblem> problems;  // the first kProblemsListedMax
  std::uint64_t problems_total = 0;
  std::vector<std::string> notes;
  std::uint64_t segments = 0;
  std::uint64_t namespaces = 0;
  std::uint64_t blocks = 0;              // index entries read
  std::uint64_t good_blocks = 0;         // that a hit may return; after a rebuild: in the new index
  std::uint64_t good_bytes = 0;          // of their records
  std::uint64_t unreachable_blocks = 0;  // good, but a parent is missing: they count again once it is stored again
  bool index_rebuilt = false;
  bool repaired = false;  // all that was found, the unlisted too
};

// A store with more problems than this is not looked at one by one.
inline constexpr std::size_t kProblemsListedMax = 10'000;

// FailedPrecondition: in use, not a store, or of another format; nothing was touched. DataLoss: beyond repair.
// Otherwise what reading or writing failed with.
absl::StatusOr<FsckReport> Fsck(const FsckOptions& options);

}  // namespace kvist
