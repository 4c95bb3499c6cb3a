#include "cachestore/tier/store_files.h"

#include <sys/random.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "cachestore/io/errno_status.h"
#include "cachestore/io/sealed_file.h"
#include "fmt/format.h"

namespace kvist {
namespace {

constexpr SealedKind kSecretKind{"KVISTKEY", 1};
constexpr SealedKind kNamespaceKind{"KVISTNSP", 1};
constexpr SealedKind kCleanKind{"KVISTCLN", 1};
constexpr std::size_t kDigestBytes = sizeof(Digest128);

absl::Status Damaged(const std::string& path, std::string_view why) {
  return absl::DataLossError(fmt::format("{} is damaged: {}", path, why));
}

}  // namespace

absl::StatusOr<KeyHasher::Secret> NewSecret() {
  KeyHasher::Secret secret;
  std::size_t have = 0;
  while (have < secret.size()) {
    const ssize_t n = ::getrandom(secret.data() + have, secret.size() - have, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return ErrnoStatus(errno, "getrandom for the store's secret");
    have += static_cast<std::size_t>(n);
  }
  return secret;
}

absl::StatusOr<KeyHasher::Secret> ReadSecret(FileSystem& fs, const StoreDirectory& directory) {
  const absl::StatusOr<std::string> body = ReadSealedFile(fs, directory.secret(), kSecretKind);
  if (!body.ok()) return body.status();
  KeyHasher::Secret secret;
  if (body->size() != secret.size()) return Damaged(directory.secret(), "it holds no secret");
  std::memcpy(secret.data(), body->data(), secret.size());
  return secret;
}

absl::Status WriteSecret(FileSystem& fs, const StoreDirectory& directory, const KeyHasher::Secret& secret) {
  const std::string_view body(reinterpret_cast<const char*>(secret.data()), secret.size());
  return WriteSealedFile(fs, directory.secret(), kSecretKind, body);
}

std::string NamespaceFileName(const NamespaceId& id) { return id.ToHex(); }

absl::StatusOr<NamespaceEntry> ReadNamespaceFile(FileSystem& fs, const StoreDirectory& directory,
                                                 const NamespaceId& id) {
  const std::string path = directory.namespaces() + "/" + NamespaceFileName(id);
  const absl::StatusOr<std::string> body = ReadSealedFile(fs, path, kNamespaceKind);
  if (!body.ok()) return body.status();
  if (std::string_view(*body).substr(0, kDigestBytes) != EncodeDigest(id)) {
    return Damaged(path, "it is another namespace's");
  }
  absl::StatusOr<NamespaceEntry> entry = DecodeNamespaceEntry(std::string_view(*body).substr(kDigestBytes));
  if (!entry.ok()) return Damaged(path, std::string(entry.status().message()));
  return entry;
}

absl::Status WriteNamespaceFile(FileSystem& fs, const StoreDirectory& directory, const NamespaceId& id,
                                const NamespaceEntry& entry) {
  return WriteSealedFile(fs, directory.namespaces() + "/" + NamespaceFileName(id), kNamespaceKind,
                         EncodeDigest(id) + EncodeNamespaceEntry(entry));
}

absl::StatusOr<NamespaceFiles> ReadNamespaceFiles(FileSystem& fs, const StoreDirectory& directory) {
  const absl::StatusOr<std::vector<std::string>> names = fs.List(directory.namespaces());
  if (!names.ok()) return names.status();
  NamespaceFiles files;
  for (const std::string& name : *names) {
    const std::optional<NamespaceId> id = NamespaceId::FromHex(name);
    if (!id || NamespaceFileName(*id) != name) {
      files.other.push_back(name);
      continue;
    }
    absl::StatusOr<NamespaceEntry> entry = ReadNamespaceFile(fs, directory, *id);
    if (entry.ok()) {
      files.good[*id] = *std::move(entry);
    } else if (absl::IsFailedPrecondition(entry.status())) {
      return entry.status();
    } else {
      files.bad[*id] = entry.status();
    }
  }
  return files;
}

absl::StatusOr<CleanMark> ReadCleanMark(FileSystem& fs, const StoreDirectory& directory) {
  const absl::StatusOr<std::string> body = ReadSealedFile(fs, directory.clean(), kCleanKind);
  if (!body.ok()) return body.status();
  const absl::StatusOr<std::uint64_t> change = DecodeU64(std::string_view(*body).substr(0, 8));
  const absl::StatusOr<std::uint64_t> removals =
      DecodeU64(std::string_view(*body).substr(std::min<std::size_t>(8, body->size())));
  if (!change.ok() || !removals.ok()) return Damaged(directory.clean(), "it is of another size");
  return CleanMark{*change, *removals};
}

absl::Status WriteCleanMark(FileSystem& fs, const StoreDirectory& directory, const CleanMark& mark) {
  return WriteSealedFile(fs, directory.clean(), kCleanKind,
                         EncodeU64(mark.index_change) + EncodeU64(mark.removals_bytes));
}

absl::StatusOr<bool> RemoveCleanMark(FileSystem& fs, const StoreDirectory& directory) {
  const absl::StatusOr<bool> there = fs.Exists(directory.clean());
  if (!there.ok() || !*there) return there;
  if (absl::Status s = fs.Remove(directory.clean()); !s.ok()) return s;
  if (absl::Status s = fs.SyncDirectory(directory.path); !s.ok()) return s;
  return true;
}

}  // namespace kvist
