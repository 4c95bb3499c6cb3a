// Brings a store directory's state into memory when it opens, and drops what does not hold: index entries whose
// segment is missing, short or of another generation. Orphaned extents are just free space.
// Private to the tier.
#pragma once

#include "absl/status/status.h"
#include "cachestore/tier/nvme_core.h"

namespace kvist {

// Fills core's namespaces, space and summary from core.index and the segment files. What it drops is pending in
// core.deletes.
absl::Status RecoverNvme(NvmeCore& core);

}  // namespace kvist
