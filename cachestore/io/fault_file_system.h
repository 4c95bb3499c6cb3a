// A FileSystem that fails on purpose, around a real one: for tests. Faults are chosen by operation, path and count,
// and a random one by a seed, so a failing run can be repeated. Also covers asynchronous transfers.
// Thread safety: any thread; rules may be changed while transfers run.
#pragma once

#include <cerrno>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "cachestore/io/file.h"

namespace kvist {

enum class FaultOp : std::uint8_t {
  kOpen,
  kOpenDirect,
  kRead,
  kWrite,
  kSyncData,
  kAllocate,
  kResize,
  kCreateDirectory,
  kRename,
  kRemove,
  kSyncDirectory,
  kLock,
  kFreeBytes,
  kStat,
  kList,
};

enum class FaultEffect : std::uint8_t {
  kError,      // fails with `error`; nothing is transferred
  kHalfError,  // transfers the first half (in whole kDirectAlignment units), then fails with `error`
  kShort,      // transfers the first half and says so; on an io_uring engine, which retries below us: no effect
  kFlipBit,    // flips one bit of what was read, or of what is written
};

struct FaultRule {
  static constexpr std::uint64_t kForever = std::numeric_limits<std::uint64_t>::max();

  FaultOp op = FaultOp::kRead;
  FaultEffect effect = FaultEffect::kError;
  int error = EIO;
  std::string path_contains = {};  // empty: any path
  std::uint64_t skip = 0;          // matching calls let through first
  std::uint64_t count = 1;         // then this many fail
  double probability = 1.0;        // of each of those
  std::int64_t bit = -1;           // kFlipBit: which; -1: a random one
};

class FaultFileSystem final : public FileSystem {
 public:
  // `base` must outlive this. `backend` replaces kAuto of those who ask for an engine.
  FaultFileSystem(FileSystem* base, std::uint64_t seed,
                  AsyncIoOptions::Backend backend = AsyncIoOptions::Backend::kAuto);
  ~FaultFileSystem() override;

  void Add(FaultRule rule);
  void Clear();
  std::uint64_t fired() const;  // faults so far, all rules together

  absl::StatusOr<std::unique_ptr<File>> Open(const std::string& path, const OpenOptions& options) override;
  absl::Status CreateDirectory(const std::string& path) override;
  absl::StatusOr<std::vector<std::string>> List(const std::string& directory) override;
  absl::StatusOr<bool> Exists(const std::string& path) override;
  absl::StatusOr<FileInfo> Stat(const std::string& path) override;
  absl::Status SetModified(const std::string& path, absl::Time modified) override;
  absl::Status Rename(const std::string& from, const std::string& to) override;
  absl::Status Remove(const std::string& path) override;
  absl::Status RemoveDirectory(const std::string& path) override;
  absl::Status SyncDirectory(const std::string& directory) override;
  absl::StatusOr<std::uint64_t> FreeBytes(const std::string& directory) override;
  absl::StatusOr<std::unique_ptr<FileLock>> Lock(const std::string& path) override;
  absl::StatusOr<std::unique_ptr<AsyncIo>> NewAsyncIo(const AsyncIoOptions& options) override;

  // What strikes one call. For the wrappers of files and engines.
  struct Strike {
    FaultEffect effect;
    int error;
    std::uint64_t bit;  // taken modulo the transfer's bits
  };
  std::optional<Strike> Next(FaultOp op, const std::string& path);

 private:
  struct State {
    FaultRule rule;
    std::uint64_t seen = 0;
    std::uint64_t done = 0;
  };
  absl::Status Error(FaultOp op, const std::string& path);

  FileSystem& base_;
  const AsyncIoOptions::Backend backend_;
  mutable absl::Mutex mutex_;
  std::vector<State> rules_ ABSL_GUARDED_BY(mutex_);
  std::uint64_t fired_ ABSL_GUARDED_BY(mutex_) = 0;
  std::mt19937_64 random_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace kvist
