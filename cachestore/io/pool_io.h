// AsyncIo on a small pool of threads with File::ReadAt, WriteAt and SyncData. See async_io.h for the contract.
#pragma once

#include <memory>

#include "cachestore/io/async_io.h"

namespace kvist {

std::unique_ptr<AsyncIo> NewPoolIo(const AsyncIoOptions& options);

}  // namespace kvist
