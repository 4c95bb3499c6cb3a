// Brings a store directory's namespaces and segments into memory when it opens; its blocks follow (block_loader.h).
// Private to the tier.
#pragma once

#include "absl/status/status.h"
#include "cachestore/tier/nvme_core.h"

namespace kvist {

// Fills core's namespaces and space from core.index and the segment files.
absl::Status RecoverNvme(NvmeCore& core);

}  // namespace kvist
