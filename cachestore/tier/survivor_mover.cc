#include "cachestore/tier/survivor_mover.h"

#include <algorithm>
#include <optional>

namespace kvist {
namespace {

// Survivors are moved in pieces of about this size; the memory exists only while cleaning.
constexpr std::uint64_t kMoveBytesMax = std::uint64_t{16} << 20;

}  // namespace

std::vector<SurvivorMover::Survivor> SurvivorMover::Collect(Segment* victim) const {
  std::vector<Survivor> survivors;
  {
    absl::MutexLock lock(&core_.mutex);
    for (const ResidentSummary::Slot slot : victim->placed) {
      const std::optional<ResidentSummary::Item> item = core_.summary.At(slot);
      if (!item || core_.space.Find(item->second.extent) != victim) continue;
      Survivor survivor;
      survivor.key = item->first;
      survivor.entry = item->second;
      survivor.from = victim;
      survivors.push_back(std::move(survivor));
    }
  }
  // In the order they lie on the device; a slot placed twice (its block left and another took it) comes once.
  std::sort(survivors.begin(), survivors.end(),
            [](const Survivor& a, const Survivor& b) { return a.entry.extent.offset < b.entry.extent.offset; });
  survivors.erase(std::unique(survivors.begin(), survivors.end(),
                              [](const Survivor& a, const Survivor& b) { return a.key == b.key; }),
                  survivors.end());
  return survivors;
}

absl::Status SurvivorMover::Clean(Segment* victim) {
  std::vector<Survivor> survivors = Collect(victim);
  std::size_t next = 0;
  while (next < survivors.size()) {
    std::vector<Survivor> piece;
    std::uint64_t bytes = 0;
    while (next < survivors.size() && (piece.empty() || bytes + survivors[next].entry.record_bytes <= kMoveBytesMax)) {
      bytes += survivors[next].entry.record_bytes;
      piece.push_back(std::move(survivors[next++]));
    }
    if (absl::Status s = Move(piece); !s.ok()) return s;
  }
  return core_.FlushDeletes();
}

absl::Status SurvivorMover::Move(std::vector<Survivor>& survivors) {
  std::uint64_t bytes = 0;
  for (const Survivor& s : survivors) bytes += s.entry.record_bytes;
  AlignedBuffer buffer(bytes);
  std::uint64_t at = 0;
  for (Survivor& s : survivors) {
    s.record = buffer.bytes().subspan(at, s.entry.record_bytes);
    at += s.entry.record_bytes;
  }
  Read(survivors);
  std::erase_if(survivors, [](const Survivor& s) { return !s.good; });
  absl::Status status = Place(survivors);
  if (status.ok()) status = Write(survivors);
  if (status.ok()) return Commit(survivors);
  absl::MutexLock lock(&core_.mutex);
  for (const Survivor& s : survivors) {
    if (s.into == nullptr) continue;
    core_.space.Abandoned(s.to);
    core_.space.GiveBack(s.to, s.record.size());
  }
  return status;
}

// Corruption must not be carried along: what fails verification is dropped here, as by a read.
void SurvivorMover::Read(std::vector<Survivor>& survivors) {
  std::vector<IoRequest*> requests;
  for (Survivor& s : survivors) {
    s.io = {};
    s.io.kind = IoRequest::Kind::kRead;
    s.io.file = s.from->file.get();
    s.io.offset = s.entry.extent.offset;
    s.io.data = s.record.data();
    s.io.length = s.record.size();
    requests.push_back(&s.io);
  }
  const std::vector<absl::Status> results = RunAll(*core_.write_io, requests);
  for (std::size_t i = 0; i < survivors.size(); ++i) {
    Survivor& s = survivors[i];
    absl::Status status = results[i];
    if (status.ok()) status = VerifyRecord(s.record, s.key, s.entry);
    s.good = status.ok();
    if (!s.good) core_.DropBad(s.key, s.entry.extent, status);
  }
}

absl::Status SurvivorMover::Place(std::vector<Survivor>& survivors) {
  for (Survivor& s : survivors) {
    for (int attempt = 0; attempt < 2 && s.into == nullptr; ++attempt) {
      if (attempt > 0) {
        if (absl::Status opened = open_segment_(); !opened.ok() && !absl::IsNotFound(opened)) return opened;
      }
      absl::MutexLock lock(&core_.mutex);
      const std::optional<ExtentStamp> to = core_.space.Append(s.record.size());
      if (!to) continue;
      s.to = *to;
      s.into = core_.space.Find(*to);
    }
    if (s.into == nullptr) {
      return absl::ResourceExhaustedError("the NVMe tier has no room to clean in: raise its capacity");
    }
    // Its sequence number stays: a drop that came before this copy means it too. Where format 1 gave none, the lowest:
    // what REMOVALS says of such records must not mean a copy.
    const std::uint64_t sequence = ReadRecordHeader(s.record).value_or(RecordHeader{}).sequence;
    StampRecord(s.record, s.to, s.entry.expires_unix_s, std::max<std::uint64_t>(sequence, 1));
  }
  return absl::OkStatus();
}

absl::Status SurvivorMover::Write(std::vector<Survivor>& survivors) {
  std::vector<IoRequest*> requests;
  std::vector<Segment*> touched;
  for (Survivor& s : survivors) {
    s.io = {};
    s.io.kind = IoRequest::Kind::kWrite;
    s.io.file = s.into->file.get();
    s.io.offset = s.to.offset;
    s.io.data = s.record.data();
    s.io.length = s.record.size();
    requests.push_back(&s.io);
    if (touched.empty() || touched.back() != s.into) touched.push_back(s.into);
  }
  absl::Status status;
  for (const absl::Status& written : RunAll(*core_.write_io, requests)) status.Update(written);
  if (!status.ok() && !absl::IsResourceExhausted(status)) {
    absl::MutexLock lock(&core_.mutex);
    ++core_.counters.device_errors;
  }
  for (Segment* segment : touched) {
    if (status.ok()) status = core_.SyncSegment(segment);
  }
  return status;
}

absl::Status SurvivorMover::Commit(const std::vector<Survivor>& survivors) {
  absl::MutexLock order(&core_.index_mutex);
  IndexBatch batch;
  std::vector<const Survivor*> moved;
  std::vector<NvmeCore::Removed> left;
  {
    absl::MutexLock lock(&core_.mutex);
    for (const Survivor& s : survivors) {
      const std::optional<BlockEntry> now = core_.summary.Find(s.key);
      if (!now || now->extent != s.entry.extent) {  // dropped meanwhile
        core_.space.Abandoned(s.to);
        left.push_back({s.key, s.to, s.entry.record_bytes});
        continue;
      }
      BlockEntry entry = *now;
      left.push_back({s.key, s.entry.extent, s.entry.record_bytes});
      entry.extent = s.to;
      batch.put_blocks.emplace_back(s.key, entry);
      moved.push_back(&s);
    }
  }
  const absl::Status applied = core_.ApplyWithDeletes(std::move(batch));
  if (applied.ok()) core_.Forget(left);
  absl::MutexLock lock(&core_.mutex);
  for (const Survivor* s : moved) {
    if (!applied.ok()) {
      core_.space.Abandoned(s->to);
      continue;
    }
    core_.counters.bytes_written += s->entry.record_bytes;
    const std::optional<BlockEntry> now = core_.summary.Find(s->key);
    const bool moves = now && now->extent == s->entry.extent;
    const ResidentSummary::Slot slot = moves ? *core_.summary.Relocate(s->key, s->to) : BlockForest::kNone;
    core_.space.Committed(s->to, slot, s->entry.record_bytes);
    if (moves) {
      core_.space.Release(s->entry.extent, s->entry.record_bytes);
    } else {
      // A read found it bad while the batch was written: its pending delete gives the old place back, this one the new.
      core_.deletes.push_back({s->key, s->to, s->entry.record_bytes});
    }
  }
  return applied;
}

}  // namespace kvist
