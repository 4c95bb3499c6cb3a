#include "cachestore/tier/nvme_recovery.h"

#include <algorithm>
#include <map>
#include <set>

#include "cachestore/tier/store_opening.h"
#include "fmt/format.h"
#include "spdlog/spdlog.h"

namespace kvist {
namespace {

class Recovery {
 public:
  explicit Recovery(NvmeCore& core) : core_(core) {}

  absl::Status Run() {
    if (absl::Status s = LoadNamespaces(core_); !s.ok()) return s;
    return LoadSegments();
  }

 private:
  absl::Status LoadSegments() {
    std::map<std::uint64_t, SegmentEntry> known;
    absl::Status read =
        core_.index->ForEachSegment([&](std::uint64_t id, const SegmentEntry& entry) { known[id] = entry; });
    if (!read.ok()) return read;
    const absl::StatusOr<std::vector<std::string>> names = core_.fs->List(core_.directory.segments());
    if (!names.ok()) return names.status();
    std::uint64_t bytes_max = core_.segment_bytes;
    for (const auto& [id, entry] : known) bytes_max = std::max(bytes_max, entry.bytes);
    {
      absl::MutexLock lock(&core_.mutex);
      core_.summary.SetSegmentBytesMax(bytes_max);
    }
    IndexBatch batch;
    std::set<std::uint64_t> present;
    for (const std::string& name : *names) {
      const std::optional<std::uint64_t> id = ParseSegmentFileName(name);
      if (!id) continue;
      present.insert(*id);
      const auto it = known.find(*id);
      // Not in the index: its creation or its deletion was interrupted, so nothing in it counts. Not gone on with: what
      // may lie in it must not be taken for what a new generation writes, should the index be rebuilt.
      const absl::Status loaded =
          it == known.end() ? core_.fs->Remove(core_.directory.segments() + "/" + name) : LoadSegment(*id, it->second);
      if (!loaded.ok()) return loaded;
    }
    for (const auto& [id, entry] : known) {
      if (present.contains(id)) continue;
      spdlog::warn("segment {} is missing: its blocks are dropped", SegmentFileName(id));
      batch.delete_segments.push_back(id);
    }
    return core_.index->Apply(batch, IndexSync::kYes);
  }

  absl::Status LoadSegment(std::uint64_t id, const SegmentEntry& known) {
    const std::string path = core_.directory.segments() + "/" + SegmentFileName(id);
    absl::StatusOr<std::unique_ptr<File>> file = core_.files->Open(path);
    if (!file.ok()) return file.status();
    const absl::StatusOr<std::uint64_t> size = (*file)->Size();
    if (!size.ok()) return size.status();
    auto segment = std::make_unique<Segment>();
    segment->id = id;
    segment->bytes = known.bytes;
    segment->generation = known.generation;
    segment->file = *std::move(file);
    segment->state = Segment::State::kSealed;
    if (*size < segment->bytes) {
      spdlog::warn("segment {} has {} of {} bytes: blocks beyond are dropped", path, *size, segment->bytes);
      segment->readable = *size;
      // Replaced by a new file once it is empty.
      segment->state = Segment::State::kFailed;
    } else {
      segment->readable = segment->bytes;
    }
    absl::MutexLock lock(&core_.mutex);
    core_.space.Add(std::move(segment));
    return absl::OkStatus();
  }

  NvmeCore& core_;
};

}  // namespace

absl::Status RecoverNvme(NvmeCore& core) { return Recovery(core).Run(); }

}  // namespace kvist
