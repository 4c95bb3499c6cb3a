// What fsck knows of a store: everything but the segments' contents, read from a locked directory without changing it,
// and the findings so far. Private to fsck.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "cachestore/fsck/fsck.h"
#include "cachestore/fsck/segment_scan.h"
#include "cachestore/index/block_index.h"
#include "cachestore/tier/removal_log.h"
#include "cachestore/tier/store_directory.h"
#include "cachestore/tier/store_files.h"

namespace kvist {

struct StoreImage {
  struct SegmentFile {
    std::uint64_t bytes = 0;           // whole kRecordAlignment units
    std::uint64_t generation = 0;      // the highest of a genuine record; 0: holds none
    std::vector<FoundRecord> records;  // good ones, of any generation
  };

  FileSystem* fs = nullptr;
  StoreDirectory directory;
  FsckReport report;

  KeyHasher::Secret secret{};
  std::map<NamespaceId, NamespaceEntry> namespaces;  // with dropped_through of file or copy, whichever is higher
  std::set<NamespaceId> half_dropped;                // a drop that the next opening completes
  std::vector<NamespaceId> to_write;                 // their files are missing or damaged
  std::vector<NamespaceId> to_remove;                // damaged beyond help

  // As far as it could be read. Usable: all of it, and none of it contradicts the rest.
  bool index_usable = false;
  absl::flat_hash_map<BlockKey, BlockEntry> blocks;
  std::map<std::uint64_t, SegmentEntry> segments;
  absl::Time newest_time = absl::InfinitePast();
  std::uint64_t newest_sequence = 0;
  std::optional<std::uint64_t> last_change;

  std::vector<RemovedExtent> removals;
  bool removals_whole = false;
  bool format_damaged = false;
  bool secret_damaged = false;
  std::vector<std::string> leftovers;  // paths of files that a crash left

  std::map<std::uint64_t, SegmentFile> files;  // filled by the scan
  absl::flat_hash_set<BlockKey> bad_blocks;

  void Problem(FsckProblem problem);
  void Problem(std::string path, std::string what, std::string consequence) {
    Problem({std::move(path), std::nullopt, std::nullopt, std::move(what), std::move(consequence)});
  }
  void Note(std::string note);
};

// Fills all but what the scan fills. An error: not a store that can be checked.
absl::Status ReadStoreImage(StoreImage& image);

}  // namespace kvist
