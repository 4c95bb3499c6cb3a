#include "cachestore/tier/nvme_core.h"

#include <sys/random.h>

#include <new>

#include "absl/time/clock.h"
#include "fmt/format.h"
#include "spdlog/spdlog.h"

namespace kvist {

std::uint64_t NvmeCore::Remove(const BlockKey& key) {
  const std::optional<BlockEntry> entry = summary.Erase(key);
  if (!entry) return 0;
  deletes.push_back({key, entry->extent, entry->record_bytes});
  if (loading) gone.insert(key);
  return summary.PayloadBytes(*entry);
}

bool NvmeCore::RemoveExtent(const BlockKey& key, const ExtentStamp& extent) {
  const std::optional<BlockEntry> entry = summary.Find(key);
  return entry && entry->extent == extent && Remove(key) > 0;
}

absl::Status NvmeCore::ApplyWithDeletes(IndexBatch batch) {
  std::vector<Removed> taken;
  std::vector<NamespaceId> dropped;
  {
    absl::MutexLock lock(&mutex);
    taken.swap(deletes);
    dropped.swap(floors);
    for (const NamespaceId& id : dropped) batch.put_namespaces.emplace_back(id, namespaces[id]);
  }
  batch.delete_blocks.reserve(batch.delete_blocks.size() + taken.size());
  for (const Removed& removed : taken) batch.delete_blocks.push_back(removed.key);
  absl::Status status = index->Apply(batch, IndexSync::kYes);
  if (status.ok()) {
    Forget(taken);
  }
  absl::MutexLock lock(&mutex);
  if (status.ok()) {
    for (const Removed& removed : taken) space.Release(removed.extent, removed.record_bytes);
  } else {
    deletes.insert(deletes.end(), taken.begin(), taken.end());
    floors.insert(floors.end(), dropped.begin(), dropped.end());
  }
  return status;
}

void NvmeCore::Forget(std::span<const Removed> places) {
  std::vector<RemovedExtent> entries;
  entries.reserve(places.size());
  for (const auto& [key, at, bytes] : places) {
    if (bytes == 0) continue;  // an index entry without an extent
    entries.push_back({RemovedExtent::Kind::kRecord, at.segment, at.generation, at.offset, at.offset + bytes});
  }
  removals->Append(entries);
}

absl::Status NvmeCore::CompactRemovals() {
  absl::flat_hash_map<std::uint64_t, std::uint64_t> generations;
  {
    absl::ReaderMutexLock lock(&mutex);
    for (const auto& [id, segment] : space.all()) generations[id] = segment->generation;
  }
  return removals->Compact([&](std::uint64_t segment, std::uint64_t generation) {
    const auto it = generations.find(segment);
    return it != generations.end() && it->second == generation;
  });
}

absl::Status NvmeCore::FlushDeletes() {
  absl::MutexLock order(&index_mutex);
  {
    absl::MutexLock lock(&mutex);
    if (loading || (deletes.empty() && floors.empty())) return absl::OkStatus();
  }
  return ApplyWithDeletes({});
}

bool NvmeCore::DropBad(const BlockKey& key, const ExtentStamp& extent, const absl::Status& why) {
  spdlog::error("block {} in segment {} at {} is dropped: {}", key.ToHex(), extent.segment, extent.offset,
                std::string(why.message()));
  absl::MutexLock lock(&mutex);
  // OutOfRange: the segment was truncated under us.
  if (absl::IsDataLoss(why) || absl::IsOutOfRange(why)) {
    ++counters.corrupt_blocks;
  } else {
    ++counters.device_errors;
  }
  return RemoveExtent(key, extent);
}

bool NvmeCore::HasFailed(const Segment* segment) const {
  absl::ReaderMutexLock lock(&mutex);
  return segment->state == Segment::State::kFailed;
}

absl::Status NvmeCore::SyncSegment(Segment* segment) {
  if (HasFailed(segment)) {
    return absl::UnavailableError(fmt::format("{} could not be synced a moment ago", segment->file->path()));
  }
  IoRequest sync;
  sync.kind = IoRequest::Kind::kSyncData;
  sync.file = segment->file.get();
  IoRequest* request = &sync;
  absl::Status synced = RunAll(*write_io, {&request, 1})[0];
  if (synced.ok()) return synced;
  absl::MutexLock lock(&mutex);
  ++counters.device_errors;
  space.Fail(segment->id);
  return synced;
}

std::uint64_t FirstSegmentGeneration() {
  std::uint64_t generation = 0;
  if (::getrandom(&generation, sizeof generation, 0) != sizeof generation) {
    generation = static_cast<std::uint64_t>(absl::GetCurrentTimeNanos());
  }
  return generation >> 1;  // room to count up
}

absl::Status VerifyRecord(std::span<const std::byte> record, const BlockKey& key, const BlockEntry& entry) {
  absl::StatusOr<RecordHeader> header = ReadRecordHeader(record);
  if (!header.ok()) return header.status();
  if (header->extent != entry.extent) return absl::DataLossError("the record is of another place or generation");
  if (header->key != key || header->ns != entry.ns || header->parent != entry.parent) {
    return absl::DataLossError("the record is of another block");
  }
  if (header->shape.record_bytes() != record.size()) return absl::DataLossError("the record is of another size");
  return VerifyRecordPayload(record, header->shape);
}

AlignedBuffer::AlignedBuffer(std::size_t bytes)
    : memory_(static_cast<std::byte*>(::operator new (bytes, std::align_val_t{kRecordAlignment}))),
      bytes_(memory_.get(), bytes) {}

void AlignedBuffer::Free::operator()(std::byte* memory) const {
  ::operator delete (memory, std::align_val_t{kRecordAlignment});
}

}  // namespace kvist
