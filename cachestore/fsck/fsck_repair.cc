#include "cachestore/fsck/fsck_repair.h"

#include <algorithm>
#include <utility>

#include "cachestore/tier/nvme_core.h"

namespace kvist {
namespace {

// Entries per batch of a rebuild.
constexpr std::size_t kBatchBlocks = 4096;

// What REMOVALS says, for looking up.
class RemovedPlaces {
 public:
  explicit RemovedPlaces(const std::vector<RemovedExtent>& removals) {
    for (const RemovedExtent& r : removals) {
      if (r.kind == RemovedExtent::Kind::kRecord) {
        records_.insert({r.segment, {r.generation, r.begin}});
      } else {
        format1_[{r.segment, r.generation}].push_back(r);
      }
    }
  }
  bool Holds(const RecordHeader& header) const {
    const ExtentStamp& at = header.extent;
    if (records_.contains({at.segment, {at.generation, at.offset}})) return true;
    const auto ranges = format1_.find({at.segment, at.generation});
    return header.sequence == 0 && ranges != format1_.end() &&
           std::any_of(ranges->second.begin(), ranges->second.end(),
                       [&](const RemovedExtent& r) { return at.offset >= r.begin && at.offset < r.end; });
  }

 private:
  absl::flat_hash_set<std::pair<std::uint64_t, std::pair<std::uint64_t, std::uint64_t>>> records_;
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::vector<RemovedExtent>> format1_;
};

BlockEntry EntryOf(const StoreImage& image, const FoundRecord& record) {
  const RecordHeader& header = record.header;
  BlockEntry entry;
  entry.ns = header.ns;
  entry.parent = header.parent;
  entry.extent = header.extent;
  entry.record_bytes = header.shape.record_bytes();
  entry.expires_unix_s = header.expires_unix_s;
  entry.used = header.sequence;
  const auto old = image.blocks.find(header.key);
  if (old != image.blocks.end() && old->second.extent == header.extent) {
    entry.expires_unix_s = old->second.expires_unix_s;
    entry.used = old->second.used;
    entry.pins = old->second.pins;
  }
  return entry;
}

absl::Status Fill(StoreImage& image, BlockIndex& index) {
  IndexBatch batch;
  std::uint64_t newest = image.newest_sequence;
  for (const auto& [id, entry] : image.namespaces) {
    batch.put_namespaces.emplace_back(id, entry);
    newest = std::max(newest, entry.dropped_through);
  }
  for (const auto& [id, file] : image.files) {
    const auto known = image.segments.find(id);
    const std::uint64_t before = known == image.segments.end() ? 0 : known->second.generation;
    const std::uint64_t generation = std::max(file.generation, before);
    // Where no record tells, one that none can have.
    batch.put_segments.emplace_back(id,
                                    SegmentEntry{generation == 0 ? FirstSegmentGeneration() : generation, file.bytes});
    for (const FoundRecord& record : file.records) newest = std::max(newest, record.header.sequence);
  }
  batch.newest_sequence = newest;
  if (image.newest_time != absl::InfinitePast()) batch.newest_time = image.newest_time;
  image.report.good_blocks = image.report.good_bytes = 0;
  for (const auto& [key, record] : LiveRecords(image)) {
    batch.put_blocks.emplace_back(key, EntryOf(image, *record));
    ++image.report.good_blocks;
    image.report.good_bytes += record->header.shape.record_bytes();
    if (batch.put_blocks.size() < kBatchBlocks) continue;
    if (absl::Status s = index.Apply(batch, IndexSync::kNo); !s.ok()) return s;
    batch = {};
  }
  return index.Apply(batch, IndexSync::kYes);
}

}  // namespace

absl::flat_hash_map<BlockKey, const FoundRecord*> LiveRecords(const StoreImage& image) {
  const RemovedPlaces removed(image.removals);
  absl::flat_hash_map<BlockKey, const FoundRecord*> live;
  for (const auto& [id, file] : image.files) {
    const auto known = image.segments.find(id);
    const std::uint64_t generation =
        std::max(file.generation, known == image.segments.end() ? 0 : known->second.generation);
    for (const FoundRecord& record : file.records) {
      const RecordHeader& header = record.header;
      const auto ns = image.namespaces.find(header.ns);
      if (header.extent.generation != generation || ns == image.namespaces.end()) continue;
      const NamespaceSpec& spec = ns->second.spec;
      if (header.shape != RecordShape{spec.block_tokens, spec.layers, spec.layer_bytes}) continue;
      // Sequence 0 is older than any drop, and no drop has the number 0.
      if (header.sequence <= ns->second.dropped_through && ns->second.dropped_through > 0) continue;
      if (removed.Holds(header)) continue;
      const FoundRecord*& best = live[header.key];
      const auto old = image.blocks.find(header.key);
      const bool as_before = old != image.blocks.end() && old->second.extent == header.extent;
      // Copies of one record have one number: then the one that the index knew.
      if (best == nullptr || header.sequence > best->header.sequence ||
          (header.sequence == best->header.sequence && as_before)) {
        best = &record;
      }
    }
  }
  return live;
}

absl::Status RebuildIndex(StoreImage& image) {
  const std::string fresh = image.directory.index() + ".tmp";
  if (absl::Status s = BlockIndex::Destroy(fresh); !s.ok()) return s;
  BlockIndexOptions options;
  options.directory = fresh;
  options.secret = image.secret;
  absl::StatusOr<std::unique_ptr<BlockIndex>> index = BlockIndex::Open(options);
  if (!index.ok()) return index.status();
  absl::Status filled = Fill(image, **index);
  index->reset();
  if (!filled.ok()) return filled;
  if (absl::Status s = RemoveCleanMark(*image.fs, image.directory).status(); !s.ok()) return s;
  if (absl::Status s = BlockIndex::Destroy(image.directory.index()); !s.ok()) return s;
  if (absl::Status s = image.fs->Rename(fresh, image.directory.index()); !s.ok()) return s;
  image.report.index_rebuilt = true;
  return image.fs->SyncDirectory(image.directory.path);
}

absl::Status RepairIndex(StoreImage& image) {
  IndexBatch batch;
  batch.delete_blocks.assign(image.bad_blocks.begin(), image.bad_blocks.end());
  for (const auto& [key, entry] : image.blocks) {
    if (image.half_dropped.contains(entry.ns) && !image.bad_blocks.contains(key)) batch.delete_blocks.push_back(key);
  }
  for (const auto& [id, entry] : image.namespaces) batch.put_namespaces.emplace_back(id, entry);
  for (const auto& [id, entry] : image.segments) {
    const auto file = image.files.find(id);
    if (file == image.files.end()) {
      batch.delete_segments.push_back(id);
    } else if (file->second.bytes != entry.bytes) {
      batch.put_segments.emplace_back(id, SegmentEntry{entry.generation, file->second.bytes});
    }
  }
  if (absl::Status s = RemoveCleanMark(*image.fs, image.directory).status(); !s.ok()) return s;
  BlockIndexOptions options;
  options.directory = image.directory.index();
  options.create = false;
  absl::StatusOr<std::unique_ptr<BlockIndex>> index = BlockIndex::Open(options);
  if (!index.ok()) return index.status();
  return (*index)->Apply(batch, IndexSync::kYes);
}

absl::Status RepairFiles(StoreImage& image) {
  FileSystem& fs = *image.fs;
  const StoreDirectory& directory = image.directory;
  if (absl::Status s = fs.CreateDirectory(directory.namespaces()); !s.ok()) return s;
  if (image.secret_damaged) {
    if (absl::Status s = WriteSecret(fs, directory, image.secret); !s.ok()) return s;
  }
  for (const NamespaceId& id : image.to_write) {
    if (absl::Status s = WriteNamespaceFile(fs, directory, id, image.namespaces.at(id)); !s.ok()) return s;
  }
  for (const NamespaceId& id : image.to_remove) {
    if (absl::Status s = fs.Remove(directory.namespaces() + "/" + NamespaceFileName(id)); !s.ok()) return s;
  }
  for (const std::string& path : image.leftovers) {
    // A folder goes as the half-made index that it is.
    const absl::Status removed = fs.Remove(path);
    if (!removed.ok() && !BlockIndex::Destroy(path).ok()) return removed;
  }
  // What the index, right by now, does not name is removed.
  BlockIndexOptions options;
  options.directory = directory.index();
  absl::StatusOr<std::unique_ptr<BlockIndex>> index = BlockIndex::OpenToCheck(options);
  if (!index.ok()) return index.status();
  absl::flat_hash_map<BlockKey, ExtentStamp> live;
  const absl::Status read = (*index)->ForEachBlock([&](const BlockKey& key, const BlockEntry& entry) {
    live[key] = entry.extent;
    return true;
  });
  if (!read.ok()) return read;
  const std::uint64_t last_change = (*index)->last_change();
  index->reset();
  std::vector<RemovedExtent> removals;
  for (const auto& [id, file] : image.files) {
    for (const FoundRecord& record : file.records) {
      const auto it = live.find(record.header.key);
      const ExtentStamp& at = record.header.extent;
      if (it != live.end() && it->second == at) continue;
      removals.push_back({RemovedExtent::Kind::kRecord, at.segment, at.generation, at.offset,
                          at.offset + record.header.shape.record_bytes()});
    }
  }
  if (absl::Status s = WriteRemovalLog(fs, directory.removals(), removals); !s.ok()) return s;
  if (image.format_damaged) {
    if (absl::Status s = WriteFormat(fs, directory.path); !s.ok()) return s;
  }
  const absl::StatusOr<RemovalLogContents> log = ReadRemovalLog(fs, directory.removals());
  if (!log.ok()) return log.status();
  return WriteCleanMark(fs, directory, {last_change, log->bytes});
}

}  // namespace kvist
