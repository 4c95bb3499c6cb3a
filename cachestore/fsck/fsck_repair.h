// Putting right what fsck found. Private to fsck.
#pragma once

#include "absl/status/status.h"
#include "cachestore/fsck/store_image.h"

namespace kvist {

// Of two records of one key the newer, and only those that count: whole, of their segment's current generation, not
// removed, not dropped, of a known namespace.
absl::flat_hash_map<BlockKey, const FoundRecord*> LiveRecords(const StoreImage& image);

// Makes the index anew beside the old one, then puts it in its place. Sets report.good_blocks and good_bytes.
absl::Status RebuildIndex(StoreImage& image);

// Drops the bad blocks from a usable index, and what no longer has a file.
absl::Status RepairIndex(StoreImage& image);

// FORMAT, SECRET, namespaces, REMOVALS, leftovers; CLEAN last. The index is right by now.
absl::Status RepairFiles(StoreImage& image);

}  // namespace kvist
