#include "tests/power_cut/power_cut.h"

#include <rocksdb/env.h>

namespace kvist {

PowerCut::PowerCut(std::uint64_t seed)
    : random_(seed),
      base_(NewPosixFileSystem()),
      files_(NewLedgerFileSystem(base_.get(), &ledger_)),
      index_env_(NewLedgerEnv(&ledger_)) {}

PowerCut::~PowerCut() = default;

void PowerCut::Image(const std::string& directory, const std::string& into) {
  absl::MutexLock lock(&mutex_);
  ledger_.Image(directory, into, random_);
}

}  // namespace kvist
