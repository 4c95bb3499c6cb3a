// A large index, made for the purpose (KVIST_BENCH_BLOCKS of them, by default three million):
//   index_bytes_per_block  memory that opening a store with so many blocks adds, per block
//   index_ready_vs_loaded  time until the store answers / time until all of its index is in memory
// and, without a goal, what a lookup takes meanwhile.
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "absl/synchronization/notification.h"
#include "bench/store/support.h"
#include "cachestore/index/block_index.h"
#include "cachestore/io/clock.h"
#include "cachestore/tier/nvme_tier.h"

namespace kvist::bench {
namespace {

constexpr std::uint64_t kBlocksDefault = 3'000'000;
constexpr std::uint64_t kRecordBytes = 8192;
constexpr std::uint64_t kSegmentBytes = std::uint64_t{1} << 30;
constexpr std::uint64_t kChainBlocks = 40;
constexpr std::size_t kBatchBlocks = 10'000;
constexpr std::size_t kLookupBlocks = 128;
constexpr double kBytesGoal = 64;
constexpr double kReadyGoal = 0.1;

std::uint64_t ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  std::uint64_t size = 0;
  std::uint64_t resident = 0;
  statm >> size >> resident;
  return resident * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

NvmeTierOptions Options(const std::string& directory, std::uint64_t blocks, const Clock* clock) {
  NvmeTierOptions options;
  options.directory = directory;
  options.segment_bytes = kSegmentBytes;
  options.capacity_bytes = std::max<std::uint64_t>(blocks * kRecordBytes * 2, 16 * kSegmentBytes);
  options.load_wait = absl::ZeroDuration();
  options.clock = clock;
  return options;
}

// Entries in the index, and segments that are holes: nothing reads them here. The first blocks' keys.
std::vector<BlockKey> Generate(const std::string& directory, std::uint64_t blocks) {
  BlockIndexOptions options;
  options.directory = directory + "/index";
  const auto index = Check(BlockIndex::Open(options), "index");
  const std::uint64_t per_segment = kSegmentBytes / kRecordBytes;
  IndexBatch batch;
  const NamespaceId ns{1, 1};
  std::uint64_t state = 1;
  std::vector<BlockKey> first;
  BlockKey key;
  for (std::uint64_t i = 0; i < blocks; ++i) {
    BlockEntry entry;
    entry.ns = ns;
    entry.parent = i % kChainBlocks == 0 ? ns : key;
    entry.extent = {.segment = 1 + i / per_segment, .generation = 1, .offset = i % per_segment * kRecordBytes};
    entry.record_bytes = kRecordBytes;
    entry.expires_unix_s = std::int64_t{1} << 31;
    entry.used = 1 + i / kChainBlocks;
    state = state * 6364136223846793005 + 1442695040888963407;
    key = {state, i * 0x9E3779B97F4A7C15};
    batch.put_blocks.emplace_back(key, entry);
    if (first.size() < kLookupBlocks) first.push_back(key);
    if (i % per_segment == 0) {
      const std::string file = fmt::format("{}/segments/seg-{:08}", directory, entry.extent.segment);
      std::ofstream(file).close();
      std::filesystem::resize_file(file, kSegmentBytes);
      batch.put_segments.emplace_back(entry.extent.segment, SegmentEntry{.generation = 1, .bytes = kSegmentBytes});
    }
    if (batch.put_blocks.size() == kBatchBlocks || i + 1 == blocks) {
      Check(index->Apply(batch, IndexSync::kNo), "index write");
      batch = {};
    }
  }
  return first;
}

}  // namespace

void IndexFigures(const std::string& scratch, Figures& figures) {
  const char* wanted = std::getenv("KVIST_BENCH_BLOCKS");
  const std::uint64_t blocks = wanted == nullptr ? kBlocksDefault : std::strtoull(wanted, nullptr, 10);
  const std::string directory = scratch + "/index";
  const SystemClock clock;
  const NvmeTierOptions options = Options(directory, blocks, &clock);
  std::uint64_t empty = 0;
  {
    // What an open store takes that holds nothing.
    const auto tier = Check(NvmeTier::Open(options), "empty tier");
    empty = ResidentBytes();
  }
  const std::vector<BlockKey> keys = Generate(directory, blocks);
  ::malloc_trim(0);
  const std::uint64_t before = std::max(ResidentBytes(), empty);
  std::unique_ptr<NvmeTier> tier;
  absl::Notification loaded;
  double lookup = 0;
  double ready = 0;
  const double all = Seconds([&] {
    ready = Seconds([&] { tier = Check(NvmeTier::Open(options), "tier"); });
    lookup = Seconds([&] {
      std::vector<Presence> presence(keys.size());
      tier->Lookup({1, 1}, keys, 0, presence);
      if (std::ranges::count(presence, Presence::kPresent) != std::ssize(keys)) Fail("a miss while loading");
    });
    tier->WhenLoaded([&] { loaded.Notify(); });
    loaded.WaitForNotification();
  });
  if (tier->Stats().tier.blocks != blocks) Fail("not all blocks came back");
  ::malloc_trim(0);
  const double bytes = static_cast<double>(ResidentBytes() - std::min(ResidentBytes(), before));
  std::printf("index of %llu blocks: ready in %.3f s, all in memory in %.2f s; %zu looked up meanwhile: %.2f ms\n",
              static_cast<unsigned long long>(blocks), ready, all, keys.size(), lookup * 1e3);
  figures.AtMost("index_bytes_per_block", bytes / static_cast<double>(blocks), kBytesGoal);
  figures.AtMost("index_ready_vs_loaded", ready / all, kReadyGoal);
}

}  // namespace kvist::bench
