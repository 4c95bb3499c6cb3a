// Opening what belongs together in a store directory: the secret, the index, and in a store of format 1 what format 2
// adds. Private to the NVMe tier; run once, by the opening thread, with the directory entered and locked.
#pragma once

#include "absl/status/status.h"
#include "cachestore/tier/nvme_core.h"

namespace kvist {

// Settles core.secret and opens core.index. SECRET and the index's copy must agree; where one of them is missing or
// damaged, it is restored from the other. A new store's secret is made here and nowhere else.
absl::Status OpenSecretAndIndex(NvmeCore& core);

// Adds to a store of format 1 what format 2 has more. Interrupted at any point, the store still is one of format 1, and
// the next opening goes on. OK, and nothing is done, for a store of format 2.
absl::Status UpgradeFromFormat1(NvmeCore& core);

// Namespaces by file, their copies in the index, and a drop that a crash interrupted between the two.
absl::Status LoadNamespaces(NvmeCore& core);

}  // namespace kvist
