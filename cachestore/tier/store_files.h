// The small files of a store directory that hold what nothing else can tell: SECRET and namespaces/ID. The index holds
// copies, so that either side restores the other; these files count. See docs/format.md.
// Thread safety: plain functions; the caller sees to it that one thread at a time writes a file.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cachestore/index/index_records.h"
#include "cachestore/io/file.h"
#include "cachestore/key/key_hasher.h"
#include "cachestore/tier/store_directory.h"

namespace kvist {

// Random, from the kernel.
absl::StatusOr<KeyHasher::Secret> NewSecret();

// The secret that all keys of the store stem from. NotFound and DataLoss as ReadSealedFile.
absl::StatusOr<KeyHasher::Secret> ReadSecret(FileSystem& fs, const StoreDirectory& directory);
absl::Status WriteSecret(FileSystem& fs, const StoreDirectory& directory, const KeyHasher::Secret& secret);

std::string NamespaceFileName(const NamespaceId& id);

absl::StatusOr<NamespaceEntry> ReadNamespaceFile(FileSystem& fs, const StoreDirectory& directory,
                                                 const NamespaceId& id);
absl::Status WriteNamespaceFile(FileSystem& fs, const StoreDirectory& directory, const NamespaceId& id,
                                const NamespaceEntry& entry);

struct NamespaceFiles {
  std::map<NamespaceId, NamespaceEntry> good;
  std::map<NamespaceId, absl::Status> bad;  // DataLoss: why
  std::vector<std::string> other;           // names that are no namespace's
};
// FailedPrecondition if one is of a later version.
absl::StatusOr<NamespaceFiles> ReadNamespaceFiles(FileSystem& fs, const StoreDirectory& directory);

// CLEAN: present from a clean close to the next opening. What it says must be true of the other files then, so that
// the loss of their newest part shows, which without it looks like a crash.
struct CleanMark {
  std::uint64_t index_change = 0;    // BlockIndex::last_change
  std::uint64_t removals_bytes = 0;  // of REMOVALS
};
absl::StatusOr<CleanMark> ReadCleanMark(FileSystem& fs, const StoreDirectory& directory);
absl::Status WriteCleanMark(FileSystem& fs, const StoreDirectory& directory, const CleanMark& mark);
// Durable when it returns; whether there was one.
absl::StatusOr<bool> RemoveCleanMark(FileSystem& fs, const StoreDirectory& directory);

}  // namespace kvist
