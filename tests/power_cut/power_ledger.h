// What a device need not hold yet: writes that no later sync has covered, and directory entries that none has. From it
// and the files as they are, the files as they could be after a power cut are made.
//
// More lenient than any real file system: each block of an unsynced write is lost or kept by itself, an appended tail is
// cut anywhere or zeroed, a new or renamed entry may be gone. Files removed stay removed.
// Thread safety: any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace kvist {

class PowerLedger {
 public:
  using WriteId = std::uint64_t;

  // A write in place begins: what it overwrites.
  WriteId BeginWrite(const std::string& path, std::uint64_t offset, std::vector<std::byte> before);
  void EndWrite(WriteId id);
  // What a sync that begins now covers; to be forgotten once it has succeeded.
  std::vector<WriteId> Ended(const std::string& path) const;
  void Forget(const std::vector<WriteId>& writes);

  // A file that is only appended to. `synced`: of its bytes, those that are durable.
  void Appendable(const std::string& path, std::uint64_t synced);
  void Appended(const std::string& path, std::uint64_t bytes);
  void Truncated(const std::string& path, std::uint64_t size);
  std::uint64_t AppendedSize(const std::string& path) const;
  void AppendsSynced(const std::string& path, std::uint64_t size);

  void EntryCreated(const std::string& path);
  void EntryRenamed(const std::string& from, const std::string& to, std::optional<std::string> replaced);
  void EntryRemoved(const std::string& path);
  void EntriesSynced(const std::string& path);

  // Copies `directory` into `into` as it could be found after a power cut now.
  void Image(const std::string& directory, const std::string& into, std::mt19937_64& random) const;

 private:
  struct Write {
    std::string path;
    std::uint64_t offset = 0;
    std::vector<std::byte> before;
    bool ended = false;
  };
  struct Appends {
    std::uint64_t size = 0;
    std::uint64_t synced = 0;
  };
  struct Rename {
    std::string from;
    std::optional<std::string> replaced;  // the content it took the place of
  };

  mutable absl::Mutex mutex_;
  std::map<WriteId, Write> writes_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, Appends> appends_ ABSL_GUARDED_BY(mutex_);
  std::set<std::string> created_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, Rename> renamed_ ABSL_GUARDED_BY(mutex_);  // by the new name
  WriteId next_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace kvist
