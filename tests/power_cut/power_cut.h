// PowerCut: a store's files with a power switch. Hand both file systems to a store, let it run, and take images of its
// directory as they could be found after the power went: kill -9 cannot show what was never synced (D17).
// Thread safety: any thread. Must outlive the stores it is handed to.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/synchronization/mutex.h"
#include "cachestore/io/file.h"
#include "tests/power_cut/power_ledger.h"

namespace rocksdb {
class Env;
}  // namespace rocksdb

namespace kvist {

class PowerCut {
 public:
  explicit PowerCut(std::uint64_t seed);
  ~PowerCut();
  PowerCut(const PowerCut&) = delete;
  PowerCut& operator=(const PowerCut&) = delete;

  FileSystem* file_system() { return files_.get(); }
  rocksdb::Env* index_env() { return index_env_.get(); }

  // The store goes on; the image is what would be left if power went at some moment during this call.
  void Image(const std::string& directory, const std::string& into);

 private:
  PowerLedger ledger_;
  absl::Mutex mutex_;
  std::mt19937_64 random_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<FileSystem> base_;
  std::unique_ptr<FileSystem> files_;
  std::unique_ptr<rocksdb::Env> index_env_;
};

// The two halves of it.
std::unique_ptr<FileSystem> NewLedgerFileSystem(FileSystem* base, PowerLedger* ledger);
std::unique_ptr<rocksdb::Env> NewLedgerEnv(PowerLedger* ledger);

}  // namespace kvist
