#include "cachestore/tier/nvme_tier.h"

#include <algorithm>
#include <limits>
#include <thread>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "cachestore/io/file.h"
#include "cachestore/io/foreground_reads.h"
#include "cachestore/tier/block_loader.h"
#include "cachestore/tier/nvme_core.h"
#include "cachestore/tier/nvme_reader.h"
#include "cachestore/tier/nvme_recovery.h"
#include "cachestore/tier/nvme_writer.h"
#include "cachestore/tier/store_files.h"
#include "cachestore/tier/store_opening.h"
#include "fmt/format.h"
#include "spdlog/spdlog.h"

namespace kvist {
namespace {

// The smallest segment that makes sense: 8 of the smallest records.
constexpr std::uint64_t kSegmentBytesMin = 8 * 2 * kRecordAlignment;
// Threads that reap reads and verify them: XXH3 runs at memory speed, so one keeps up with one drive; a second keeps
// the ring fed while the first verifies, where there are cores for it.
constexpr unsigned kReadThreadsMax = 2;
constexpr unsigned kCoresPerReadThread = 4;

// Blocks looked at under one lock when all are: some 100 microseconds.
constexpr ResidentSummary::Slot kSlotsPerLook = 4096;

std::uint64_t RoundDown(std::uint64_t bytes) { return bytes / kRecordAlignment * kRecordAlignment; }

NvmeBlock AsBlock(const BlockKey& key, const BlockEntry& e) {
  return {e.ns, key, e.parent, e.record_bytes, e.expires_unix_s, e.pins};
}

class NvmeTierImpl final : public NvmeTier {
 public:
  explicit NvmeTierImpl(const NvmeTierOptions& options) : core_(options), loader_(&core_), writer_(&core_) {}

  ~NvmeTierImpl() override {
    loader_.Stop();
    writer_.Stop();
    reader_.reset();
    if (core_.index == nullptr || !core_.load_status.ok()) return;
    if (absl::Status s = core_.FlushDeletes(); !s.ok()) {
      spdlog::warn("closing the NVMe tier: {}", std::string(s.message()));
    }
    if (opened_) MarkClean();
  }

  absl::Status Init() {
    if (absl::Status s = ChooseSizes(); !s.ok()) return s;
    if (core_.options.file_system == nullptr) core_.own_file_system = NewPosixFileSystem();
    core_.fs = core_.own_file_system ? core_.own_file_system.get() : core_.options.file_system;
    absl::StatusOr<StoreDirectory> directory = EnterStoreDirectory(*core_.fs, core_.options.directory);
    if (!directory.ok()) return directory.status();
    core_.directory = *std::move(directory);
    RaiseOpenFilesLimit(core_.segments_max);
    core_.files = std::make_unique<DataFiles>(core_.fs);
    if (absl::Status s = core_.files->Probe(core_.directory.segments()); !s.ok()) return s;
    const absl::StatusOr<bool> closed_cleanly = RemoveCleanMark(*core_.fs, core_.directory);
    if (!closed_cleanly.ok()) return closed_cleanly.status();
    core_.after_crash = !*closed_cleanly;
    if (absl::Status s = OpenSecretAndIndex(core_); !s.ok()) return s;
    if (absl::Status s = UpgradeFromFormat1(core_); !s.ok()) return s;
    if (absl::Status s = FinishStoreDirectory(*core_.fs, core_.directory); !s.ok()) return s;
    if (absl::Status s = OpenEngines(); !s.ok()) return s;
    if (absl::Status s = RecoverNvme(core_); !s.ok()) return s;
    loader_.Start();
    if (loader_.WaitFor(core_.options.load_wait)) {
      if (!core_.load_status.ok()) return core_.load_status;
    } else {
      spdlog::info("store {}: ready while its index is still read", core_.directory.path);
    }
    reader_ = std::make_unique<NvmeReader>(&core_, [this] { writer_.Wake(); });
    writer_.Start(NewestSequence());
    opened_ = true;
    return absl::OkStatus();
  }

  const KeyHasher::Secret& secret() const override { return core_.secret; }
  absl::Time newest_time() const override { return core_.index->newest_time(); }

  absl::Status PutNamespace(const StoredNamespace& stored) override {
    const std::size_t record = RecordShapeOf(stored.ns.spec).record_bytes();
    if (record > core_.segment_bytes) {
      return absl::InvalidArgumentError(fmt::format(
          "blocks of this namespace take {} bytes, a segment has {}: raise the NVMe capacity to at least {} and the "
          "segment size to at least {}",
          record, core_.segment_bytes, record * kSegmentsMin, record));
    }
    absl::MutexLock order(&core_.index_mutex);
    NamespaceEntry entry{stored.ns.spec, stored.ttl};
    {
      absl::ReaderMutexLock lock(&core_.mutex);
      const auto it = core_.namespaces.find(stored.ns.id);
      if (it != core_.namespaces.end()) entry.dropped_through = it->second.dropped_through;
    }
    if (absl::Status s = WriteNamespaceFile(*core_.fs, core_.directory, stored.ns.id, entry); !s.ok()) return s;
    IndexBatch batch;
    batch.put_namespaces.emplace_back(stored.ns.id, entry);
    batch.newest_time = core_.options.clock->Wall();
    if (absl::Status s = core_.index->Apply(batch, IndexSync::kYes); !s.ok()) return s;
    absl::MutexLock lock(&core_.mutex);
    core_.summary.SetNamespace(stored.ns.id, entry.spec.payload_bytes(), entry.spec.block_tokens);
    core_.namespaces[stored.ns.id] = std::move(entry);
    return absl::OkStatus();
  }

  std::vector<StoredNamespace> Namespaces() const override {
    absl::ReaderMutexLock lock(&core_.mutex);
    std::vector<StoredNamespace> all;
    for (const auto& [id, entry] : core_.namespaces) all.push_back({{id, entry.spec}, entry.ttl});
    return all;
  }

  void RegisterBuffer(std::span<std::byte> memory) override {
    for (AsyncIo* io : {core_.read_io.get(), core_.write_io.get()}) {
      if (absl::Status s = io->RegisterBuffer(memory); !s.ok()) {
        spdlog::info("{}; transfers pin their pages one by one", std::string(s.message()));
        return;
      }
    }
  }

  std::optional<NvmeBlock> Find(const BlockKey& key) const override {
    for (bool looked = false;; looked = true) {
      {
        absl::ReaderMutexLock lock(&core_.mutex);
        const std::optional<BlockEntry> entry = core_.summary.Find(key);
        if (entry) return AsBlock(key, *entry);
        if (!core_.loading || looked) return std::nullopt;
      }
      loader_.Load({&key, 1});
    }
  }

  void Lookup(const NamespaceId& ns, std::span<const BlockKey> keys, std::int64_t now_unix_s,
              std::span<Presence> presence) const override {
    {
      absl::ReaderMutexLock lock(&core_.mutex);
      core_.summary.Lookup(ns, keys, now_unix_s, presence);
      if (!core_.loading) return;
    }
    std::vector<BlockKey> absent;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      if (presence[i] == Presence::kAbsent) absent.push_back(keys[i]);
    }
    if (absent.empty()) return;
    loader_.Load(absent);
    absl::ReaderMutexLock lock(&core_.mutex);
    core_.summary.Lookup(ns, keys, now_unix_s, presence);
  }

  void ForEach(const std::function<void(const NvmeBlock&)>& visit) const override {
    ResidentSummary::Slot end = 1;
    for (ResidentSummary::Slot next = 0; next < end; next += kSlotsPerLook) {
      std::vector<ResidentSummary::Item> some;
      {
        absl::ReaderMutexLock lock(&core_.mutex);
        end = core_.summary.slots_end();
        for (ResidentSummary::Slot slot = next; slot < std::min(end, next + kSlotsPerLook); ++slot) {
          if (std::optional<ResidentSummary::Item> item = core_.summary.At(slot)) some.push_back(*std::move(item));
        }
      }
      for (const auto& [key, entry] : some) visit(AsBlock(key, entry));
    }
  }

  bool loading() const override { return !core_.loaded.HasBeenNotified(); }
  void WhenLoaded(absl::AnyInvocable<void()> done) override { loader_.WhenLoaded(std::move(done)); }
  void ForEachLoaded(std::function<void(const NvmeBlock&)> visit) override {
    loader_.Watch([visit](const BlockKey& key, const BlockEntry& entry) { visit(AsBlock(key, entry)); });
    ForEach(visit);
  }

  void Write(const NvmeBlock& block, std::span<std::byte> record, DoneStatus done) override {
    (void)Find(block.key);  // while loading: into the summary, which the writer asks
    writer_.Write(block, record, std::move(done));
  }

  void Read(const BlockKey& key, std::span<std::byte> record, DoneStatus done) override {
    reader_->Read(key, record, std::move(done));
  }

  void Touch(std::span<const BlockKey> keys, std::int64_t expires_unix_s) override {
    absl::MutexLock lock(&core_.mutex);
    // Keys come in the chain's order: parents end up younger than their children.
    for (auto key = keys.rbegin(); key != keys.rend(); ++key) core_.summary.Touch(*key, expires_unix_s);
  }

  absl::Status SetPins(const BlockKey& key, std::uint32_t pins) override {
    absl::MutexLock order(&core_.index_mutex);
    IndexBatch batch;
    std::uint32_t before = 0;
    {
      absl::MutexLock lock(&core_.mutex);
      const std::optional<BlockEntry> entry = core_.summary.Find(key);
      if (!entry) return absl::NotFoundError("not resident");
      before = entry->pins;
      // Pinned in memory first: it must not be evicted while the index is written.
      core_.summary.SetPins(key, std::max(pins, before));
      batch.put_blocks.emplace_back(key, *core_.summary.Find(key));
      batch.put_blocks[0].second.pins = pins;
    }
    absl::Status status = core_.index->Apply(batch, IndexSync::kYes);
    absl::MutexLock lock(&core_.mutex);
    core_.summary.SetPins(key, status.ok() ? pins : before);
    return status;
  }

  absl::StatusOr<DropResult> Drop(std::span<const BlockKey> keys) override {
    if (absl::Status s = AwaitLoaded(); !s.ok()) return s;
    const absl::flat_hash_set<BlockKey> wanted(keys.begin(), keys.end());
    absl::MutexLock order(&core_.index_mutex);
    (void)writer_.Cancel([&](const NvmeBlock& block) { return wanted.contains(block.key); });
    return DropOrdered(keys);
  }

  absl::StatusOr<DropResult> DropNamespace(const NamespaceId& ns) override {
    if (absl::Status s = AwaitLoaded(); !s.ok()) return s;
    absl::MutexLock order(&core_.index_mutex);
    const std::uint64_t newest = writer_.Cancel([&](const NvmeBlock& block) { return block.ns == ns; });
    const absl::Status noted = RaiseFloor(ns, newest);
    std::vector<BlockKey> keys;
    {
      absl::ReaderMutexLock lock(&core_.mutex);
      keys = core_.summary.KeysOf(ns);
    }
    absl::StatusOr<DropResult> dropped = DropOrdered(keys);
    if (dropped.ok() && !noted.ok()) return noted;
    return dropped;
  }

  // In pieces: neither lookups nor commits wait for a pass over all blocks. Each expired leaf goes, and upwards from it
  // what its leaving makes one; so a single pass finds all.
  absl::StatusOr<std::uint64_t> DropExpired(std::int64_t now_unix_s) override {
    if (loading()) return 0;  // there will be another pass
    if (!core_.load_status.ok()) return core_.load_status;
    std::uint64_t dropped = 0;
    std::int64_t earliest = std::numeric_limits<std::int64_t>::max();
    ResidentSummary::Slot end = 1;
    for (ResidentSummary::Slot next = 0; next < end; next += kSlotsPerLook) {
      absl::MutexLock order(&core_.index_mutex);
      std::size_t gone = 0;
      {
        absl::MutexLock lock(&core_.mutex);
        if (next == 0) {
          if (!core_.summary.MayHaveExpired(now_unix_s)) return 0;
          // What is touched from here on lowers it again.
          core_.summary.SetEarliestExpiry(earliest);
        }
        end = core_.summary.slots_end();
        for (ResidentSummary::Slot slot = next; slot < std::min(end, next + kSlotsPerLook); ++slot) {
          std::optional<ResidentSummary::Item> item = core_.summary.At(slot);
          if (!item) continue;
          BlockKey key = item->first;
          if (!core_.summary.IsExpiredLeaf(key, now_unix_s)) {
            if (item->second.pins == 0) earliest = std::min(earliest, item->second.expires_unix_s);
            continue;
          }
          while (core_.summary.IsExpiredLeaf(key, now_unix_s)) {
            const BlockKey parent = core_.summary.Find(key)->parent;
            core_.Remove(key);
            ++gone;
            key = parent;
          }
        }
        core_.counters.expired_blocks += gone;
        if (next + kSlotsPerLook >= end) core_.summary.LowerEarliestExpiry(earliest);
      }
      dropped += gone;
      if (gone == 0) continue;
      if (absl::Status s = core_.ApplyWithDeletes({}); !s.ok()) {
        absl::MutexLock lock(&core_.mutex);
        core_.summary.LowerEarliestExpiry(std::numeric_limits<std::int64_t>::min());
        return s;
      }
    }
    return dropped;
  }

  void Flush(DoneStatus done) override { writer_.Flush(std::move(done)); }

  NvmeTierStats Stats() const override {
    NvmeTierStats stats;
    stats.writes_pending = writer_.pending();
    stats.direct_io = core_.files->direct();
    stats.loading = loading();
    absl::ReaderMutexLock lock(&core_.mutex);
    stats.tier = {core_.summary.blocks(), core_.summary.payload_bytes(), core_.options.capacity_bytes};
    stats.evicted_blocks = core_.counters.evicted_blocks;
    stats.expired_blocks = core_.counters.expired_blocks;
    stats.corrupt_blocks = core_.counters.corrupt_blocks;
    stats.device_errors = core_.counters.device_errors;
    stats.bytes_written = core_.counters.bytes_written;
    stats.bytes_accepted = core_.counters.bytes_accepted;
    return stats;
  }

 private:
  absl::Status AwaitLoaded() const {
    core_.loaded.WaitForNotification();
    return core_.load_status;
  }

  static RecordShape RecordShapeOf(const NamespaceSpec& spec) {
    return {spec.block_tokens, spec.layers, spec.layer_bytes};
  }

  absl::Status ChooseSizes() {
    const NvmeTierOptions& o = core_.options;
    if (o.clock == nullptr) return absl::InvalidArgumentError("NvmeTierOptions::clock is not set");
    core_.segment_bytes = RoundDown(std::min(o.segment_bytes, o.capacity_bytes / kSegmentsMin));
    if (core_.segment_bytes < kSegmentBytesMin) {
      return absl::InvalidArgumentError(
          fmt::format("an NVMe capacity of {} bytes in segments of {} is too small: at least {} in segments of {}",
                      o.capacity_bytes, o.segment_bytes, kSegmentBytesMin * kSegmentsMin, kSegmentBytesMin));
    }
    // Half the range is left to segments that have come and gone.
    if (o.capacity_bytes > ExtentPages::kBytesMax / 2) {
      return absl::InvalidArgumentError(
          fmt::format("an NVMe capacity of {} bytes in one directory is too large: at most {}; use several stores",
                      o.capacity_bytes, ExtentPages::kBytesMax / 2));
    }
    core_.segments_max = o.capacity_bytes / core_.segment_bytes;
    return absl::OkStatus();
  }

  absl::Status OpenEngines() {
    AsyncIoOptions o;
    o.queue_depth = std::max<std::uint32_t>(core_.options.queue_depth, 1);
    o.reads = std::make_shared<ForegroundReads>();
    o.threads = std::clamp(std::thread::hardware_concurrency() / kCoresPerReadThread, 1U, kReadThreadsMax);
    absl::StatusOr<std::unique_ptr<AsyncIo>> reads = core_.fs->NewAsyncIo(o);
    if (!reads.ok()) return reads.status();
    core_.read_io = *std::move(reads);
    o.threads = 1;
    o.background = true;
    // What was refused once is not tried, and logged, again.
    if (core_.read_io->name() == "threads") o.backend = AsyncIoOptions::Backend::kThreads;
    absl::StatusOr<std::unique_ptr<AsyncIo>> writes = core_.fs->NewAsyncIo(o);
    if (!writes.ok()) return writes.status();
    core_.write_io = *std::move(writes);
    return absl::OkStatus();
  }

  // The newest that any record in the store may have.
  std::uint64_t NewestSequence() const {
    absl::ReaderMutexLock lock(&core_.mutex);
    // 1 is for survivors that format 1 wrote without one.
    std::uint64_t newest = std::max<std::uint64_t>(core_.index->newest_sequence(), 1);
    for (const auto& [id, entry] : core_.namespaces) newest = std::max(newest, entry.dropped_through);
    return newest;
  }

  // Durable before a block goes: what lies in the segments of this namespace now must not come back, even if the index
  // is lost. On failure the blocks can still go; the index keeps the floor until the file can be written.
  absl::Status RaiseFloor(const NamespaceId& ns, std::uint64_t newest)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_.index_mutex) {
    NamespaceEntry entry;
    {
      absl::MutexLock lock(&core_.mutex);
      const auto it = core_.namespaces.find(ns);
      if (it == core_.namespaces.end()) return absl::OkStatus();
      it->second.dropped_through = newest;
      core_.floors.push_back(ns);
      entry = it->second;
    }
    return WriteNamespaceFile(*core_.fs, core_.directory, ns, entry);
  }

  // The last thing: everything else is closed.
  void MarkClean() {
    absl::MutexLock order(&core_.index_mutex);
    const CleanMark mark{core_.index->last_change(), core_.removals->bytes()};
    core_.index.reset();
    if (absl::Status s = WriteCleanMark(*core_.fs, core_.directory, mark); !s.ok()) {
      spdlog::warn("closing the NVMe tier: {}", std::string(s.message()));
    }
  }

  absl::StatusOr<DropResult> DropOrdered(std::span<const BlockKey> keys)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(core_.index_mutex) {
    DropResult result;
    {
      absl::MutexLock lock(&core_.mutex);
      for (const BlockKey& key : keys) {
        const std::uint64_t bytes = core_.Remove(key);
        result.bytes += bytes;
        result.blocks += bytes > 0 ? 1 : 0;
      }
      if (core_.deletes.empty() && core_.floors.empty()) return result;
    }
    if (absl::Status s = core_.ApplyWithDeletes({}); !s.ok()) return s;
    return result;
  }

  mutable NvmeCore core_;
  mutable BlockLoader loader_;
  NvmeWriter writer_;
  std::unique_ptr<NvmeReader> reader_;
  bool opened_ = false;
};

}  // namespace

absl::StatusOr<std::unique_ptr<NvmeTier>> NvmeTier::Open(const NvmeTierOptions& options) {
  auto tier = std::make_unique<NvmeTierImpl>(options);
  if (absl::Status status = tier->Init(); !status.ok()) return status;
  return tier;
}

}  // namespace kvist
