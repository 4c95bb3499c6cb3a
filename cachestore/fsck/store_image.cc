#include "cachestore/fsck/store_image.h"

#include <algorithm>
#include <utility>

#include "fmt/format.h"

namespace kvist {
namespace {

constexpr std::string_view kTemporarySuffix = ".tmp";
constexpr const char* kNotOpened = "the store does not open";
constexpr const char* kRebuildForgets = "a rebuilt index may hold blocks that were evicted";

std::string Text(const absl::Status& status) { return std::string(status.message()); }

absl::Status Enter(StoreImage& image) {
  FileSystem& fs = *image.fs;
  const std::string& path = image.directory.path;
  const absl::StatusOr<std::vector<std::string>> names = fs.List(path);
  if (!names.ok()) return names.status();
  const absl::StatusOr<std::uint32_t> format = ReadFormat(fs, path);
  if (!format.ok() && !absl::IsDataLoss(format.status())) return format.status();
  if (format.ok() && *format == 1) {
    return absl::FailedPreconditionError(
        fmt::format("{} is of format 1; `kvist status --store {}` upgrades it, then it can be checked", path, path));
  }
  if (format.ok() && *format == 0) {
    // REMOVALS is made right after FORMAT: without either, at most a creation was interrupted.
    const absl::StatusOr<bool> whole_once = fs.Exists(image.directory.removals());
    if (!whole_once.ok() || !*whole_once) return absl::NotFoundError(fmt::format("{} holds no store", path));
  }
  absl::StatusOr<std::unique_ptr<FileLock>> lock = fs.Lock(path + "/LOCK");
  if (!lock.ok()) return lock.status();
  image.directory.lock = *std::move(lock);
  image.directory.format = format.value_or(0);
  if (!format.ok() || *format == 0) {
    image.format_damaged = true;
    image.Problem(path + "/FORMAT", format.ok() ? "missing" : "damaged",
                  format.ok() ? "the next opening writes it anew" : kNotOpened);
  }
  for (const std::string& name : *names) {
    const std::string file = path + "/" + name;
    if (name.ends_with(kTemporarySuffix) &&
        IsStoreFileName(std::string_view(name).substr(0, name.size() - kTemporarySuffix.size()))) {
      image.leftovers.push_back(file);
    } else if (!IsStoreFileName(name)) {
      image.Note(fmt::format("{}: not one of the store's files; left alone", file));
    }
  }
  return absl::OkStatus();
}

void ReadIndex(StoreImage& image, std::optional<KeyHasher::Secret>& copy,
               std::map<NamespaceId, NamespaceEntry>& namespaces) {
  const std::string path = image.directory.index();
  BlockIndexOptions options;
  options.directory = path;
  absl::StatusOr<std::unique_ptr<BlockIndex>> opened = BlockIndex::OpenToCheck(options);
  if (!opened.ok()) {
    image.Problem(path, Text(opened.status()), kNotOpened);
    return;
  }
  BlockIndex& index = **opened;
  copy = index.secret();
  absl::Status read = index.Verify();
  // What can be read of a damaged one helps a rebuild: each entry is guarded by a checksum of its own block.
  read.Update(index.ForEachBlock([&](const BlockKey& key, const BlockEntry& entry) {
    image.blocks[key] = entry;
    return true;
  }));
  read.Update(index.ForEachSegment([&](std::uint64_t id, const SegmentEntry& entry) { image.segments[id] = entry; }));
  read.Update(
      index.ForEachNamespace([&](const NamespaceId& id, NamespaceEntry entry) { namespaces[id] = std::move(entry); }));
  if (read.ok() && index.undecodable() > 0) {
    read = absl::DataLossError(fmt::format("{} entries are not readable", index.undecodable()));
  }
  if (!read.ok()) image.Problem(path, Text(read), "blocks are missed or the store does not open");
  image.index_usable = read.ok();
  image.newest_time = index.newest_time();
  image.newest_sequence = index.newest_sequence();
  image.last_change = index.last_change();
}

absl::Status SettleSecret(StoreImage& image, const std::optional<KeyHasher::Secret>& copy) {
  const absl::StatusOr<KeyHasher::Secret> secret = ReadSecret(*image.fs, image.directory);
  if (!secret.ok() && !absl::IsNotFound(secret.status()) && !absl::IsDataLoss(secret.status())) return secret.status();
  if (!secret.ok() && !copy) {
    return absl::DataLossError(fmt::format(
        "{}: {}, and so is the index that holds a copy: no block of this store can be found or verified any more; put "
        "SECRET back from a backup, or remove the directory to start anew",
        image.directory.secret(), absl::IsNotFound(secret.status()) ? "missing" : "damaged"));
  }
  image.secret = secret.ok() ? *secret : *copy;
  if (!secret.ok()) {
    image.secret_damaged = true;
    image.Problem(image.directory.secret(), absl::IsNotFound(secret.status()) ? "missing" : "damaged",
                  "the next opening restores it from the index, as long as that is whole");
  } else if (copy && *copy != *secret) {
    image.Problem(image.directory.index(), "its copy of the secret is another store's", kNotOpened);
    image.index_usable = false;
    image.blocks.clear();
    image.segments.clear();
  }
  return absl::OkStatus();
}

absl::Status ReadNamespaces(StoreImage& image, const std::map<NamespaceId, NamespaceEntry>& copies) {
  absl::StatusOr<NamespaceFiles> files = ReadNamespaceFiles(*image.fs, image.directory);
  if (absl::IsNotFound(files.status())) {
    image.Problem(image.directory.namespaces(), "missing", "the next opening restores it from the index");
    files = NamespaceFiles();
  }
  if (!files.ok()) return files.status();
  const std::string folder = image.directory.namespaces() + "/";
  const KeyHasher hasher(image.secret);
  const auto genuine = [&](const NamespaceId& id, const NamespaceEntry& entry) {
    return hasher.Root(entry.spec.Canonical()) == id;
  };
  image.namespaces = std::move(files->good);
  for (auto it = image.namespaces.begin(); it != image.namespaces.end();) {
    if (genuine(it->first, it->second)) {
      ++it;
      continue;
    }
    files->bad[it->first] = absl::DataLossError("it is another store's");
    it = image.namespaces.erase(it);
  }
  for (const auto& [id, copy] : copies) {
    const auto it = image.namespaces.find(id);
    if (it == image.namespaces.end()) {
      if (!genuine(id, copy)) continue;
      if (!files->bad.contains(id)) {
        image.Problem(folder + NamespaceFileName(id), "missing", "the next opening restores it from the index");
      }
      image.namespaces[id] = copy;
      image.to_write.push_back(id);
      continue;
    }
    if (it->second.dropped_through > copy.dropped_through) image.half_dropped.insert(id);
    it->second.dropped_through = std::max(it->second.dropped_through, copy.dropped_through);
  }
  for (const auto& [id, why] : files->bad) {
    const bool copied = image.namespaces.contains(id);
    image.Problem(folder + NamespaceFileName(id), Text(why),
                  copied ? "the next opening restores it from the index" : "its blocks cannot be found");
    if (!copied) image.to_remove.push_back(id);
  }
  for (const std::string& name : files->other) {
    if (name.ends_with(kTemporarySuffix)) {
      image.leftovers.push_back(folder + name);
    } else {
      image.Note(fmt::format("{}{}: not one of the store's files; left alone", folder, name));
    }
  }
  return absl::OkStatus();
}

absl::Status ReadRemovals(StoreImage& image) {
  const std::string path = image.directory.removals();
  const absl::StatusOr<RemovalLogContents> log = ReadRemovalLog(*image.fs, path);
  if (absl::IsNotFound(log.status())) {
    // It is made right after FORMAT, before any segment.
    image.removals_whole = image.segments.empty() && image.index_usable;
    if (!image.removals_whole) image.Problem(path, "missing", kRebuildForgets);
    return absl::OkStatus();
  }
  if (!log.ok()) return log.status();
  image.removals = log->removals;
  image.removals_whole = !log->head_damaged && log->damaged == 0;
  if (!image.removals_whole) {
    image.Problem(path, log->head_damaged ? "its head is damaged" : fmt::format("{} damaged entries", log->damaged),
                  kRebuildForgets);
  }
  const absl::StatusOr<CleanMark> mark = ReadCleanMark(*image.fs, image.directory);
  if (absl::IsNotFound(mark.status())) {
    image.Note("the store was not closed cleanly; what was not acknowledged then may be lost");
    return absl::OkStatus();
  }
  if (!mark.ok()) {
    image.Problem(image.directory.clean(), Text(mark.status()), "a loss of the newest changes would not show");
    return absl::OkStatus();
  }
  if (!log->head_damaged && log->bytes != mark->removals_bytes) {
    image.removals_whole = false;
    image.Problem(path, fmt::format("{} bytes where a clean close left {}", log->bytes, mark->removals_bytes),
                  kRebuildForgets);
  }
  if (image.last_change && image.index_usable && *image.last_change != mark->index_change) {
    image.index_usable = false;
    image.Problem(
        image.directory.index(),
        fmt::format("it ends at change {}, a clean close left it at {}", *image.last_change, mark->index_change),
        "blocks are missed");
  }
  return absl::OkStatus();
}

}  // namespace

void StoreImage::Problem(FsckProblem problem) {
  ++report.problems_total;
  if (report.problems.size() < kProblemsListedMax) report.problems.push_back(std::move(problem));
}

void StoreImage::Note(std::string note) { report.notes.push_back(std::move(note)); }

absl::Status ReadStoreImage(StoreImage& image) {
  if (absl::Status s = Enter(image); !s.ok()) return s;
  std::optional<KeyHasher::Secret> copy;
  std::map<NamespaceId, NamespaceEntry> copies;
  ReadIndex(image, copy, copies);
  if (absl::Status s = SettleSecret(image, copy); !s.ok()) return s;
  if (absl::Status s = ReadNamespaces(image, copies); !s.ok()) return s;
  if (absl::Status s = ReadRemovals(image); !s.ok()) return s;
  image.report.namespaces = image.namespaces.size();
  image.report.blocks = image.blocks.size();
  return absl::OkStatus();
}

}  // namespace kvist
