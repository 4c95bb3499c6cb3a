#include "cachestore/fsck/fsck.h"

#include <algorithm>
#include <utility>

#include "cachestore/fsck/fsck_repair.h"
#include "cachestore/fsck/store_image.h"
#include "cachestore/tier/nvme_core.h"
#include "fmt/format.h"

namespace kvist {
namespace {

constexpr const char* kBlockIsAMiss = "the block is a miss";

class SegmentCheck {
 public:
  SegmentCheck(StoreImage* image, const std::function<void(std::uint64_t, std::uint64_t)>& progress)
      : image_(*image), hasher_(image->secret), progress_(progress) {}

  absl::Status Run() {
    for (const auto& [key, entry] : image_.blocks) indexed_[entry.extent.segment].emplace_back(key, entry);
    if (absl::Status s = ListFiles(); !s.ok()) return s;
    for (auto& [id, file] : image_.files) {
      if (absl::Status s = CheckFile(id, file); !s.ok()) return s;
    }
    for (const auto& [id, blocks] : indexed_) {
      if (!image_.files.contains(id)) LostSegment(id, blocks.size());
    }
    for (const auto& [id, entry] : image_.segments) {
      if (!image_.files.contains(id) && !indexed_.contains(id)) {
        image_.Note(fmt::format("segment {} is missing; no block is in it", SegmentFileName(id)));
      }
    }
    image_.report.segments = image_.files.size();
    return absl::OkStatus();
  }

 private:
  using Indexed = std::vector<std::pair<BlockKey, BlockEntry>>;

  std::string PathOf(std::uint64_t id) const { return image_.directory.segments() + "/" + SegmentFileName(id); }

  absl::Status ListFiles() {
    const absl::StatusOr<std::vector<std::string>> names = image_.fs->List(image_.directory.segments());
    if (absl::IsNotFound(names.status())) return absl::OkStatus();  // its segments are missing then
    if (!names.ok()) return names.status();
    for (const std::string& name : *names) {
      const std::string path = image_.directory.segments() + "/" + name;
      const std::optional<std::uint64_t> id = ParseSegmentFileName(name);
      if (!id) {
        if (name.ends_with(".tmp")) {
          image_.leftovers.push_back(path);
        } else {
          image_.Note(fmt::format("{}: not one of the store's files; left alone", path));
        }
        continue;
      }
      absl::StatusOr<std::unique_ptr<File>> file = image_.fs->Open(path, {});
      if (!file.ok()) return file.status();
      const absl::StatusOr<std::uint64_t> size = (*file)->Size();
      if (!size.ok()) return size.status();
      const auto known = image_.segments.find(*id);
      if (known == image_.segments.end() && image_.index_usable) {
        image_.Note(fmt::format("{}: left by an interrupted creation or deletion; the next opening removes it", path));
        continue;
      }
      const std::uint64_t whole = *size / kRecordAlignment * kRecordAlignment;
      image_.files[*id].bytes = whole;
      total_ += *size;
      if (known != image_.segments.end() && known->second.bytes != whole) {
        image_.Problem(path, fmt::format("{} bytes where the index has {}", *size, known->second.bytes),
                       "blocks beyond its end are misses");
      }
    }
    return absl::OkStatus();
  }

  void LostSegment(std::uint64_t id, std::size_t blocks) {
    for (const auto& [key, entry] : indexed_[id]) image_.bad_blocks.insert(key);
    image_.Problem(PathOf(id), "missing", fmt::format("its {} blocks are misses", blocks));
  }

  absl::Status CheckFile(std::uint64_t id, StoreImage::SegmentFile& file) {
    absl::StatusOr<std::unique_ptr<File>> opened = image_.fs->Open(PathOf(id), {});
    if (!opened.ok()) return opened.status();
    SegmentWindow window(opened->get(), file.bytes);
    Indexed& entries = indexed_[id];
    std::sort(entries.begin(), entries.end(),
              [](const auto& a, const auto& b) { return a.second.extent.offset < b.second.extent.offset; });
    std::vector<std::uint64_t> starts;
    for (const auto& [key, entry] : entries) starts.push_back(entry.extent.offset);
    absl::flat_hash_map<std::uint64_t, absl::Status> bad;  // whole headers with bad contents
    ScanSegment(
        window, id, starts, hasher_,
        [&](FoundRecord record) {
          if (record.verdict.ok()) {
            file.generation = std::max(file.generation, record.header.extent.generation);
            file.records.push_back(std::move(record));
          } else {
            bad[record.header.extent.offset] = record.verdict;
          }
        },
        [&](std::uint64_t passed) { Report(passed); });
    done_ += file.bytes;
    CheckEntries(window, id, file, entries, bad);
    CheckGeneration(id, file);
    if (entries.empty()) indexed_.erase(id);
    return absl::OkStatus();
  }

  void CheckGeneration(std::uint64_t id, const StoreImage::SegmentFile& file) {
    const auto known = image_.segments.find(id);
    if (!image_.index_usable || known == image_.segments.end()) return;
    if (file.generation <= known->second.generation) return;
    image_.Problem(PathOf(id), "it was written again since the index was", "the index is older than the segments");
    stale_index_ = true;
  }

  void CheckEntries(SegmentWindow& window, std::uint64_t id, const StoreImage::SegmentFile& file,
                    const Indexed& entries, const absl::flat_hash_map<std::uint64_t, absl::Status>& bad) {
    absl::flat_hash_map<std::uint64_t, const RecordHeader*> good;
    for (const FoundRecord& record : file.records) good[record.header.extent.offset] = &record.header;
    std::uint64_t end = 0;
    for (const auto& [key, entry] : entries) {
      if (image_.half_dropped.contains(entry.ns)) continue;
      const auto found = good.find(entry.extent.offset);
      absl::Status verdict = CheckPlace(entry, file.bytes);
      if (verdict.ok() && found != good.end()) verdict = Compare(key, entry, *found->second);
      if (verdict.ok() && found == good.end()) {
        const auto known = bad.find(entry.extent.offset);
        verdict = known != bad.end() ? known->second : Examine(window, key, entry);
      }
      if (verdict.ok() && entry.extent.offset < end) verdict = absl::DataLossError("it overlaps the one before");
      if (verdict.ok()) {
        end = entry.extent.offset + entry.record_bytes;
        ++image_.report.good_blocks;
        image_.report.good_bytes += entry.record_bytes;
        continue;
      }
      image_.bad_blocks.insert(key);
      image_.Problem({PathOf(id), entry.extent.offset, key, std::string(verdict.message()), kBlockIsAMiss});
    }
  }

  absl::Status CheckPlace(const BlockEntry& entry, std::uint64_t file_bytes) const {
    const auto segment = image_.segments.find(entry.extent.segment);
    if (segment == image_.segments.end()) return absl::DataLossError("the index does not know its segment");
    if (segment->second.generation != entry.extent.generation) {
      return absl::DataLossError("the index entry is of another generation of its segment");
    }
    if (entry.record_bytes == 0 || entry.record_bytes % kRecordAlignment != 0 ||
        entry.extent.offset % kRecordAlignment != 0 || entry.record_bytes > file_bytes ||
        entry.extent.offset > file_bytes - entry.record_bytes) {
      return absl::DataLossError("it reaches beyond its segment");
    }
    if (!image_.namespaces.contains(entry.ns)) return absl::DataLossError("its namespace is not known");
    return absl::OkStatus();
  }

  absl::Status Compare(const BlockKey& key, const BlockEntry& entry, const RecordHeader& header) const {
    if (header.key != key || header.ns != entry.ns || header.parent != entry.parent) {
      return absl::DataLossError("the record is of another block");
    }
    if (header.extent != entry.extent) return absl::DataLossError("the record is of another generation");
    const NamespaceEntry& ns = image_.namespaces.at(entry.ns);
    const RecordShape shape{ns.spec.block_tokens, ns.spec.layers, ns.spec.layer_bytes};
    if (header.shape != shape || entry.record_bytes != shape.record_bytes()) {
      return absl::DataLossError("the record is of another size than its namespace's");
    }
    if (ns.dropped_through > 0 && header.sequence <= ns.dropped_through) {
      return absl::DataLossError("it was dropped, and is in the index");
    }
    return absl::OkStatus();
  }

  // Where the scan found no whole header: why.
  static absl::Status Examine(SegmentWindow& window, const BlockKey& key, const BlockEntry& entry) {
    const auto record = window.View(entry.extent.offset, entry.record_bytes);
    if (!record.ok()) return record.status();
    const absl::Status verdict = VerifyRecord(*record, key, entry);
    return verdict.ok() ? absl::DataLossError("block record: not found by its header") : verdict;
  }

  void Report(std::uint64_t passed) {
    if (progress_) progress_(done_ + passed, total_);
  }

  StoreImage& image_;
  const KeyHasher hasher_;
  const std::function<void(std::uint64_t, std::uint64_t)>& progress_;
  std::map<std::uint64_t, Indexed> indexed_;
  std::uint64_t done_ = 0;
  std::uint64_t total_ = 0;

 public:
  bool stale_index_ = false;
};

void CountUnreachable(StoreImage& image) {
  absl::flat_hash_map<BlockKey, std::vector<BlockKey>> children;
  std::vector<BlockKey> open;
  std::uint64_t good = 0;
  for (const auto& [key, entry] : image.blocks) {
    if (image.bad_blocks.contains(key) || image.half_dropped.contains(entry.ns)) continue;
    ++good;
    if (entry.parent == entry.ns) {
      open.push_back(key);
    } else {
      children[entry.parent].push_back(key);
    }
  }
  std::uint64_t reached = 0;
  while (!open.empty()) {
    const BlockKey key = open.back();
    open.pop_back();
    ++reached;
    const auto it = children.find(key);
    if (it != children.end()) open.insert(open.end(), it->second.begin(), it->second.end());
  }
  image.report.unreachable_blocks = good - reached;
  if (good > reached) {
    image.Note(fmt::format("{} blocks lack a parent: they are misses until it is stored again", good - reached));
  }
}

}  // namespace

absl::StatusOr<FsckReport> Fsck(const FsckOptions& options) {
  std::unique_ptr<FileSystem> posix;
  StoreImage image;
  image.fs = options.file_system;
  if (image.fs == nullptr) {
    posix = NewPosixFileSystem();
    image.fs = posix.get();
  }
  image.directory.path = options.directory;
  if (absl::Status s = ReadStoreImage(image); !s.ok()) return s;
  SegmentCheck check(&image, options.progress);
  if (absl::Status s = check.Run(); !s.ok()) return s;
  if (check.stale_index_) image.index_usable = false;
  if (image.index_usable) CountUnreachable(image);
  for (const std::string& path : image.leftovers) image.Note(fmt::format("{}: left by a crash", path));

  const bool rebuild = options.rebuild_index || (options.repair && !image.index_usable);
  if (!rebuild && !(options.repair && (image.report.problems_total > 0 || !image.leftovers.empty()))) {
    return std::move(image.report);
  }
  if (absl::Status s = rebuild ? RebuildIndex(image) : RepairIndex(image); !s.ok()) return s;
  if (absl::Status s = RepairFiles(image); !s.ok()) return s;
  image.report.repaired = true;
  for (FsckProblem& problem : image.report.problems) problem.repaired = true;
  return std::move(image.report);
}

}  // namespace kvist
