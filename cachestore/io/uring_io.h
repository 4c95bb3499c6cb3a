// AsyncIo on io_uring: one ring and one thread each; submission and completion in batches; bounded in flight.
// The only user of io_uring. See async_io.h for the contract.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "cachestore/io/async_io.h"

namespace kvist {

// Unavailable, with the kernel's reason, where io_uring is denied (sysctl, seccomp) or lacks what we need.
absl::StatusOr<std::unique_ptr<AsyncIo>> NewUringIo(const AsyncIoOptions& options);

}  // namespace kvist
