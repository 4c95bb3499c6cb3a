#include "cachestore/shared/shared_folder.h"

#include <sys/random.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <utility>

#include "cachestore/io/clock.h"
#include "cachestore/io/errno_status.h"
#include "cachestore/shared/folder_layout.h"
#include "cachestore/tier/block_record.h"
#include "fmt/format.h"
#include "xxhash.h"

namespace kvist {
namespace {

constexpr std::string_view kFolderFormatPrefix = "kvist shared folder, format ";
constexpr std::size_t kSmallFileBytesMax = 4096;
constexpr std::array<std::string_view, 4> kFolderParts = {"cluster", "objects", "incoming", "trash"};
// Buckets are made about once a day: that several appear during one lookup does not happen.
constexpr int kSearchRounds = 3;

std::uint64_t RandomNumber() {
  std::uint64_t number = 0;
  if (::getrandom(&number, sizeof number, 0) != sizeof number) {
    number = static_cast<std::uint64_t>(absl::ToInt64Nanoseconds(SystemClock().Monotonic()));
  }
  return number;
}

absl::StatusOr<KeyHasher::Secret> RandomSecret() {
  KeyHasher::Secret secret;
  // Up to 256 bytes come whole once the kernel's pool is ready.
  if (::getrandom(secret.data(), secret.size(), 0) != static_cast<ssize_t>(secret.size())) {
    return ErrnoStatus(errno, "getrandom for the shared folder's secret");
  }
  return secret;
}

// The secret and its checksum: a flipped bit must not pass for another cluster.
std::string EncodeSecret(const KeyHasher::Secret& secret) {
  std::string bytes(reinterpret_cast<const char*>(secret.data()), secret.size());
  const std::uint64_t sum = XXH3_64bits(secret.data(), secret.size());
  bytes.append(reinterpret_cast<const char*>(&sum), sizeof sum);
  return bytes;
}

std::optional<KeyHasher::Secret> DecodeSecret(std::string_view bytes) {
  KeyHasher::Secret secret;
  std::uint64_t sum = 0;
  if (bytes.size() != secret.size() + sizeof sum) return std::nullopt;
  std::memcpy(secret.data(), bytes.data(), secret.size());
  std::memcpy(&sum, bytes.data() + secret.size(), sizeof sum);
  if (sum != XXH3_64bits(secret.data(), secret.size())) return std::nullopt;
  return secret;
}

absl::Status WriteSmallFile(FileSystem& fs, const std::string& path, std::string_view contents) {
  absl::StatusOr<std::unique_ptr<File>> file = fs.Open(path, {.create = true, .direct = false});
  if (!file.ok()) return file.status();
  const absl::Status written = WriteFull(**file, 0, std::as_bytes(std::span<const char>(contents)));
  return written.ok() ? (*file)->SyncData() : written;
}

absl::Status Verify(std::span<const std::byte> record, const ObjectName& name) {
  const absl::StatusOr<RecordHeader> header = ReadRecordHeader(record);
  if (!header.ok()) return header.status();
  if (header->key != name.key || header->ns != name.ns) return absl::DataLossError("the object is of another block");
  if (header->shape.record_bytes() != record.size()) return absl::DataLossError("the object is of another size");
  return VerifyRecordPayload(record, header->shape);
}

// Expiries are kept in whole seconds, rounded up so that nothing expires early.
absl::Time WholeSeconds(absl::Time expires) {
  if (BucketName(expires) == BucketName(absl::InfiniteFuture())) return absl::FromUnixSeconds(kNeverUnixSeconds);
  return absl::FromUnixSeconds(absl::ToUnixSeconds(expires + absl::Seconds(1) - absl::Nanoseconds(1)));
}

// What the name of an entry in `incoming` says of when it was made.
std::optional<absl::Time> MadeAt(std::string_view name) {
  std::int64_t seconds = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), seconds);
  if (error != std::errc() || end == name.data() + name.size() || *end != '-') return std::nullopt;
  return absl::FromUnixSeconds(seconds);
}

}  // namespace

SharedFolder::SharedFolder(std::shared_ptr<FileSystem> fs, Options options)
    : fs_(std::move(fs)), options_(std::move(options)), writer_(RandomNumber()) {}

std::string SharedFolder::Path(std::string_view below) const { return fmt::format("{}/{}", options_.directory, below); }

std::string SharedFolder::UniqueName() { return fmt::format("{:016x}-{}", writer_, next_++); }

absl::StatusOr<KeyHasher::Secret> SharedFolder::ReadCluster() {
  const absl::StatusOr<std::string> format = ReadSmallFile(*fs_, Path("cluster/FORMAT"), kSmallFileBytesMax);
  if (!format.ok()) return format.status();
  if (*format != fmt::format("{}{}\n", kFolderFormatPrefix, kFolderFormatVersion)) {
    return absl::FailedPreconditionError(fmt::format(
        "{} is a shared folder of another format ({}), this program reads version {}; nothing was changed: use the "
        "program that wrote it, or choose another folder",
        options_.directory, format->substr(0, format->find('\n')), kFolderFormatVersion));
  }
  const absl::StatusOr<std::string> bytes = ReadSmallFile(*fs_, Path("cluster/SECRET"), kSmallFileBytesMax);
  // NotFound would mean that there is no cluster, and one would be founded.
  if (absl::IsNotFound(bytes.status())) return absl::UnavailableError(std::string(bytes.status().message()));
  if (!bytes.ok()) return bytes.status();
  const std::optional<KeyHasher::Secret> secret = DecodeSecret(*bytes);
  if (!secret) {
    return absl::DataLossError(fmt::format(
        "{}/cluster/SECRET is damaged, so that no key can be told: restore it, or start over with an empty folder",
        options_.directory));
  }
  return *secret;
}

absl::Status SharedFolder::CheckNothingForeign() {
  const absl::StatusOr<std::vector<std::string>> names = fs_->List(options_.directory);
  // Not made here: a path that is not there is most often one that is not mounted.
  if (absl::IsNotFound(names.status())) {
    return absl::UnavailableError(
        fmt::format("the shared folder {} does not exist; mount it, or make it once", options_.directory));
  }
  if (!names.ok()) return names.status();
  for (const std::string& name : *names) {
    if (std::find(kFolderParts.begin(), kFolderParts.end(), name) != kFolderParts.end()) continue;
    if (name == "lost+found" || name == ".snapshot") continue;  // a file system's own
    return absl::FailedPreconditionError(fmt::format(
        "{} is not a shared folder and not empty (it holds {}); choose an empty folder", options_.directory, name));
  }
  return absl::OkStatus();
}

absl::Status SharedFolder::FoundCluster(const KeyHasher::Secret& secret) {
  // In `trash`: what a founder leaves behind is swept, and as long as there is no cluster nobody sweeps.
  const std::string founding = Path(fmt::format("trash/{}", UniqueName()));
  absl::Status status = fs_->CreateDirectory(founding);
  if (status.ok()) status = WriteSmallFile(*fs_, founding + "/SECRET", EncodeSecret(secret));
  if (status.ok()) {
    status =
        WriteSmallFile(*fs_, founding + "/FORMAT", fmt::format("{}{}\n", kFolderFormatPrefix, kFolderFormatVersion));
  }
  if (status.ok()) status = fs_->SyncDirectory(founding);
  if (status.ok() && abandoned_) status = absl::CancelledError("too late: whoever wanted this has given up");
  if (!status.ok()) return status;
  // Onto another's `cluster`, which is not empty, this fails.
  status = fs_->Rename(founding, Path("cluster"));
  if (status.ok()) return fs_->SyncDirectory(options_.directory);
  std::size_t budget = kSweepEntriesMax;
  (void)RemoveTree(founding, budget);  // a sweep would get it later
  return status;
}

absl::StatusOr<KeyHasher::Secret> SharedFolder::Enter(const std::optional<KeyHasher::Secret>& own) {
  absl::StatusOr<KeyHasher::Secret> secret = ReadCluster();
  if (absl::IsNotFound(secret.status())) {
    if (absl::Status status = CheckNothingForeign(); !status.ok()) return status;
    const absl::StatusOr<KeyHasher::Secret> mine = own ? absl::StatusOr<KeyHasher::Secret>(*own) : RandomSecret();
    if (!mine.ok()) return mine.status();
    const absl::Status founded = FoundCluster(*mine);
    // Failed because another was first, or for a reason that reading will tell.
    secret = ReadCluster();
    if (absl::IsNotFound(secret.status())) return founded;
  }
  if (!secret.ok()) return secret.status();
  if (own && *own != *secret) {
    return absl::FailedPreconditionError(fmt::format(
        "the store was made with a key secret of its own, and the shared folder {} has another, so that neither could "
        "use the other's blocks; nothing was changed: give the store an empty directory (it takes over the folder's "
        "secret), or an empty folder (it takes over the store's)",
        options_.directory));
  }
  for (const std::string_view part : kFolderParts) {
    if (absl::Status status = fs_->CreateDirectory(Path(part)); !status.ok()) return status;
  }
  entered_ = true;
  return secret;
}

absl::StatusOr<std::vector<std::string>> SharedFolder::Buckets(bool fresh) {
  const absl::Duration now = SystemClock().Monotonic();
  if (!fresh) {
    absl::MutexLock lock(&mutex_);
    if (now - listed_ < options_.bucket_list_age) return buckets_;
  }
  absl::StatusOr<std::vector<std::string>> names = fs_->List(Path("objects"));
  if (!names.ok()) return names.status();
  std::erase_if(*names, [](const std::string& name) { return !ParseBucketName(name); });  // sorted, "never" last
  absl::MutexLock lock(&mutex_);
  buckets_ = *names;
  listed_ = now;
  return names;
}

std::string SharedFolder::LastBucket() {
  absl::MutexLock lock(&mutex_);
  return last_bucket_;
}

void SharedFolder::NoteBucket(const std::string& bucket) {
  absl::MutexLock lock(&mutex_);
  last_bucket_ = bucket;
  const auto at = std::lower_bound(buckets_.begin(), buckets_.end(), bucket);
  if (at == buckets_.end() || *at != bucket) buckets_.insert(at, bucket);
}

absl::Status SharedFolder::Search(const ObjectName& name, absl::Time now,
                                  const std::function<absl::Status(const Found&)>& accept) {
  const std::string object = ObjectPath(name);
  const absl::Status absent = absl::NotFoundError("not in the shared folder");
  absl::StatusOr<std::vector<std::string>> buckets = Buckets(/*fresh=*/false);
  for (int round = 0; round < kSearchRounds; ++round) {
    if (!buckets.ok()) return buckets.status();
    std::vector<std::string> order = *buckets;
    // A chain's blocks were mostly stored together. Then all of them in order, that one again, for what moves into it.
    if (std::string last = LastBucket(); !last.empty()) order.insert(order.begin(), std::move(last));
    for (const std::string& bucket : order) {
      if (*ParseBucketName(bucket) <= now) continue;
      Found found{.path = Path(fmt::format("objects/{}/{}", bucket, object)), .bucket = bucket, .info = {}};
      const absl::StatusOr<FileInfo> info = fs_->Stat(found.path);
      if (absl::IsNotFound(info.status())) continue;
      if (!info.ok()) return info.status();
      if (info->modified <= now) continue;
      found.info = *info;
      const absl::Status accepted = accept(found);
      if (accepted.ok()) NoteBucket(bucket);
      if (!absl::IsNotFound(accepted)) return accepted;
    }
    // It may have moved into a bucket that was made since they were listed.
    const std::vector<std::string> before = *std::move(buckets);
    buckets = Buckets(/*fresh=*/true);
    if (buckets.ok() && *buckets == before) return absent;
  }
  return absent;
}

absl::Status SharedFolder::Get(const ObjectName& name, std::span<std::byte> into, absl::Time now) {
  return Search(name, now, [&](const Found& found) -> absl::Status {
    const absl::StatusOr<std::unique_ptr<File>> file = fs_->Open(found.path, {});
    if (!file.ok()) return file.status();
    absl::Status status =
        found.info.bytes == into.size()
            ? ReadFull(**file, 0, into)
            : absl::DataLossError(fmt::format("{} has {} bytes, not {}", found.path, found.info.bytes, into.size()));
    if (absl::IsOutOfRange(status)) status = absl::DataLossError(std::string(status.message()));
    if (status.ok()) status = Verify(into, name);
    if (!absl::IsDataLoss(status)) return status;
    // Gone, so that a good one can take its place. If it was the transfer that failed, a good one is lost: a miss.
    (void)fs_->Remove(found.path);
    return absl::DataLossError(fmt::format("{}: {}", found.path, std::string(status.message())));
  });
}

absl::StatusOr<std::size_t> SharedFolder::CountPresent(const NamespaceId& ns, std::span<const BlockKey> chain,
                                                       absl::Time now) {
  absl::Status failed;
  const auto present = [&](std::size_t index) {
    const absl::Status status =
        Search({ns, chain[index]}, now, [](const Found&) -> absl::Status { return absl::OkStatus(); });
    if (!status.ok() && !absl::IsNotFound(status)) failed.Update(status);
    return status.ok();
  };
  // A chain is present as a prefix, nearly always: most often nothing or all of it, and what is between is bisected.
  if (chain.empty() || !present(0)) return failed.ok() ? absl::StatusOr<std::size_t>(0) : failed;
  std::size_t have = 1;             // present
  std::size_t lack = chain.size();  // from here on, unknown or absent
  if (present(chain.size() - 1)) return chain.size();
  while (have + 1 < lack && failed.ok()) {
    const std::size_t middle = have + (lack - have) / 2;
    present(middle - 1) ? have = middle : lack = middle;
  }
  return have;
}

absl::Status SharedFolder::MoveIn(const std::string& from, const ObjectName& name, const std::string& bucket) {
  const std::string directory = Path(fmt::format("objects/{}/{}", bucket, ObjectDirectory(name)));
  const std::string to = Path(fmt::format("objects/{}/{}", bucket, ObjectPath(name)));
  absl::Status status = fs_->Rename(from, to);
  if (absl::IsNotFound(status)) {
    // Making the directory would make its parents too: not where nothing is mounted.
    const absl::StatusOr<bool> mounted = fs_->Exists(Path("cluster/FORMAT"));
    if (!mounted.ok()) return mounted.status();
    if (!*mounted) {
      return absl::UnavailableError(fmt::format("{} is not there (any more): is it mounted?", options_.directory));
    }
    if (status = fs_->CreateDirectory(directory); !status.ok()) return status;
    status = fs_->Rename(from, to);
  }
  if (!status.ok()) return status;
  NoteBucket(bucket);
  return options_.sync ? fs_->SyncDirectory(directory) : absl::OkStatus();
}

absl::Status SharedFolder::WriteIncoming(const std::string& path, const ObjectRecord& record, absl::Time expires) {
  {
    const absl::StatusOr<std::unique_ptr<File>> file = fs_->Open(path, {.create = true, .direct = false});
    if (!file.ok()) return file.status();
    absl::Status status = WriteFull(**file, 0, record.header);
    if (status.ok()) status = WriteFull(**file, record.header.size(), record.payload.bytes);
    if (status.ok() && options_.sync) status = (*file)->SyncData();
    if (!status.ok()) return status;
  }
  return fs_->SetModified(path, WholeSeconds(expires));
}

absl::Status SharedFolder::Put(const ObjectName& name, const ObjectRecord& record, absl::Time expires, absl::Time now) {
  const std::string directory = Path(fmt::format("incoming/{:016x}", writer_));
  const std::string path = fmt::format("{}/{}-{}", directory, absl::ToUnixSeconds(now), next_++);
  absl::Status status = WriteIncoming(path, record, expires);
  if (absl::IsNotFound(status)) {
    const absl::StatusOr<bool> mounted = fs_->Exists(Path("cluster/FORMAT"));
    if (!mounted.ok()) return mounted.status();
    if (!*mounted) {
      return absl::UnavailableError(fmt::format("{} is not there (any more): is it mounted?", options_.directory));
    }
    status = fs_->CreateDirectory(directory);
    if (status.ok()) status = WriteIncoming(path, record, expires);
  }
  if (status.ok()) status = MoveIn(path, name, BucketName(expires));
  if (!status.ok()) (void)fs_->Remove(path);
  return status;
}

absl::Status SharedFolder::Refresh(const ObjectName& name, absl::Time expires, absl::Time now) {
  return Search(name, now, [&](const Found& found) -> absl::Status {
    if (found.info.modified >= WholeSeconds(expires)) return absl::OkStatus();
    // The time first: an object with a later expiry in an early bucket goes early at worst.
    if (absl::Status status = fs_->SetModified(found.path, WholeSeconds(expires)); !status.ok()) return status;
    const std::string bucket = BucketName(expires);
    return bucket <= found.bucket ? absl::OkStatus() : MoveIn(found.path, name, bucket);
  });
}

absl::Status SharedFolder::ToTrash(const std::string& path) {
  return fs_->Rename(path, Path(fmt::format("trash/{}", UniqueName())));
}

absl::Status SharedFolder::DropNamespace(const NamespaceId& ns) {
  const absl::StatusOr<std::vector<std::string>> names = fs_->List(Path("objects"));
  if (!names.ok()) return names.status();
  for (const std::string& bucket : *names) {
    if (!ParseBucketName(bucket)) continue;
    const absl::Status status = ToTrash(Path(fmt::format("objects/{}/{}", bucket, NamespacePath(ns))));
    if (!status.ok() && !absl::IsNotFound(status)) return status;
  }
  return absl::OkStatus();
}

absl::Status SharedFolder::RemoveTree(const std::string& path, std::size_t& budget) {
  const absl::StatusOr<std::vector<std::string>> names = fs_->List(path);
  // Not a directory: a file. NotFound: another sweeper was faster, and below too.
  if (absl::IsNotFound(names.status())) return absl::OkStatus();
  if (!names.ok()) {
    if (!absl::IsFailedPrecondition(names.status())) return names.status();
    if (budget > 0) --budget;
    const absl::Status removed = fs_->Remove(path);
    return absl::IsNotFound(removed) ? absl::OkStatus() : removed;
  }
  for (const std::string& name : *names) {
    if (budget == 0) return absl::OkStatus();
    if (absl::Status status = RemoveTree(fmt::format("{}/{}", path, name), budget); !status.ok()) return status;
  }
  if (budget == 0) return absl::OkStatus();
  --budget;
  const absl::Status removed = fs_->RemoveDirectory(path);
  return absl::IsNotFound(removed) ? absl::OkStatus() : removed;
}

absl::Status SharedFolder::RemoveLeftovers(absl::Time now, std::size_t& budget) {
  const absl::StatusOr<std::vector<std::string>> writers = fs_->List(Path("incoming"));
  if (!writers.ok()) return writers.status();
  for (const std::string& writer : *writers) {
    const std::string directory = Path(fmt::format("incoming/{}", writer));
    const absl::StatusOr<std::vector<std::string>> files = fs_->List(directory);
    if (!files.ok()) continue;
    for (const std::string& name : *files) {
      const std::optional<absl::Time> made = MadeAt(name);
      if (!made || now - *made < kLeftoverAge + kExpiryGrace || budget == 0) continue;
      --budget;
      if (absl::Status status = fs_->Remove(directory + "/" + name); !status.ok() && !absl::IsNotFound(status)) {
        return status;
      }
    }
    // Fails if it isn't empty; a writer who is alive makes it again.
    (void)fs_->RemoveDirectory(directory);
  }
  return absl::OkStatus();
}

absl::Status SharedFolder::Sweep(absl::Time now) {
  const absl::StatusOr<std::vector<std::string>> buckets = fs_->List(Path("objects"));
  if (!buckets.ok()) return buckets.status();
  for (const std::string& bucket : *buckets) {
    const std::optional<absl::Time> end = ParseBucketName(bucket);
    if (!end || now < *end + kExpiryGrace) continue;
    const absl::Status status = ToTrash(Path(fmt::format("objects/{}", bucket)));
    if (!status.ok() && !absl::IsNotFound(status)) return status;
  }
  const absl::StatusOr<std::vector<std::string>> trash = fs_->List(Path("trash"));
  if (!trash.ok()) return trash.status();
  std::size_t budget = kSweepEntriesMax;
  for (const std::string& name : *trash) {
    if (absl::Status status = RemoveTree(Path(fmt::format("trash/{}", name)), budget); !status.ok()) return status;
  }
  return RemoveLeftovers(now, budget);
}

}  // namespace kvist
