// The NVMe tier against fio on the same device, at the same size and depth, rounds alternating:
//   nvme_read_SIZE_vs_fio   bandwidth of verified block reads / fio's random reads (io_uring, direct)
//   nvme_write_SIZE_vs_fio  bandwidth of durable block writes / fio's, with an fdatasync as often as the tier has one
#include <algorithm>
#include <array>
#include <numeric>

#include "absl/synchronization/mutex.h"
#include "bench/store/support.h"
#include "cachestore/io/clock.h"
#include "cachestore/tier/nvme_tier.h"

namespace kvist::bench {
namespace {

constexpr std::size_t kReadDepth = 16;
constexpr std::uint64_t kReadBytes = std::uint64_t{224} << 20;  // a round: long enough to leave start-up behind
constexpr int kReadRounds = 15;
constexpr double kReadGoal = 0.97;

constexpr std::uint64_t kWriteBytes = std::uint64_t{256} << 20;  // a round
constexpr std::size_t kGroupBlocks = 512;                        // at least as many as the tier has for a sync
constexpr int kWriteRounds = 9;
constexpr double kWriteGoal = 0.9;

struct Case {
  const char* name;
  std::uint32_t layers;
  std::uint64_t layer_bytes;
};
// Records that are 4 KiB of header and this much payload. The middle one is SmolLM2-135M's block.
constexpr std::array kCases = {Case{"128k", 31, 4096}, Case{"1_4m", 30, 64 * 3 * 64 * 2 * 2}, Case{"1m", 255, 4096}};

NvmeTierOptions Options(const std::string& directory, const Clock* clock) {
  NvmeTierOptions options;
  options.directory = directory;
  options.capacity_bytes = std::uint64_t{4} << 30;
  options.segment_bytes = std::uint64_t{128} << 20;
  options.queue_depth = kReadDepth;
  options.write_queue_limit = 1 << 16;
  options.clock = clock;
  return options;
}

// Bytes per second of reading and verifying every block once, kReadDepth at a time.
double TierBandwidth(NvmeTier& tier, const std::vector<NvmeBlock>& blocks, std::span<std::byte> buffers) {
  absl::Mutex mutex;
  std::vector<std::size_t> free_buffers(kReadDepth);
  std::iota(free_buffers.begin(), free_buffers.end(), std::size_t{0});
  const std::size_t record = blocks[0].record_bytes;
  const double seconds = Seconds([&] {
    for (const NvmeBlock& block : blocks) {
      mutex.LockWhen(absl::Condition(
          +[](std::vector<std::size_t>* buffer) { return !buffer->empty(); }, &free_buffers));
      const std::size_t buffer = free_buffers.back();
      free_buffers.pop_back();
      mutex.Unlock();
      tier.Read(block.key, buffers.subspan(buffer * record, record), [&, buffer](const absl::Status& status) {
        if (!status.ok()) Fail("read: " + std::string(status.message()));
        absl::MutexLock lock(&mutex);
        free_buffers.push_back(buffer);
      });
    }
    mutex.LockWhen(absl::Condition(
        +[](std::vector<std::size_t>* all) { return all->size() == kReadDepth; }, &free_buffers));
    mutex.Unlock();
  });
  return static_cast<double>(record * blocks.size()) / seconds;
}

// Bytes per second that fio moves; `what`: its own options.
double FioBandwidth(const std::string& file, std::size_t block_bytes, std::uint64_t bytes, const std::string& what,
                    bool writes) {
  const std::string command = fmt::format(
      "fio --name=kvist --filename={} {} --bs={} --size={} --direct=1 --ioengine=io_uring --iodepth={} "
      "--invalidate=1 --output-format=terse --terse-version=3 2>/dev/null",
      file, what, block_bytes, bytes / block_bytes * block_bytes, kReadDepth);
  std::FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) Fail("can't run fio");
  std::string output;
  std::array<char, 4096> buffer;
  while (std::fgets(buffer.data(), buffer.size(), pipe) != nullptr) output += buffer.data();
  if (pclose(pipe) != 0) Fail("fio failed (is it installed?): " + output);
  // Terse version 3: field 7 is the read bandwidth in KiB/s, field 48 the writes'.
  std::size_t at = output.find("3;");
  for (int field = 1; field < (writes ? 48 : 7) && at != std::string::npos; ++field) at = output.find(';', at) + 1;
  const double bandwidth = std::strtod(output.c_str() + at, nullptr) * 1024;
  if (bandwidth <= 0) Fail("fio's output is not understood: " + output);
  return bandwidth;
}

// Seals as many fresh records as a round writes into `buffers`: made by the store's commit, not measured here.
std::vector<NvmeBlock> MakeRecords(const NamespaceId& ns, const RecordShape& shape, std::uint64_t& next,
                                   std::span<std::byte> buffers) {
  const std::size_t record = shape.record_bytes();
  const auto tokens = Tokens(shape.block_tokens, 3);
  std::vector<NvmeBlock> blocks;
  for (std::size_t i = 0; i < kWriteBytes / record; ++i) {
    ++next;
    const NvmeBlock& block = blocks.emplace_back(NvmeBlock{.ns = ns,
                                                           .key = {next * 0x9E3779B97F4A7C15, next},
                                                           .parent = ns,
                                                           .record_bytes = record,
                                                           .expires_unix_s = std::int64_t{1} << 31});
    RecordHeader header;
    header.ns = ns;
    header.parent = ns;
    header.key = block.key;
    header.shape = shape;
    header.expires_unix_s = block.expires_unix_s;
    SealRecord(buffers.subspan(i * record, record), header, tokens);
  }
  return blocks;
}

// Bytes per second until the last write is acknowledged as durable.
double WriteBandwidth(NvmeTier& tier, const std::vector<NvmeBlock>& blocks, std::span<std::byte> buffers) {
  const std::size_t record = blocks[0].record_bytes;
  absl::Mutex mutex;
  std::size_t left = blocks.size();
  return static_cast<double>(record * blocks.size()) / Seconds([&] {
           for (std::size_t i = 0; i < blocks.size(); ++i) {
             tier.Write(blocks[i], buffers.subspan(i * record, record), [&](const absl::Status& status) {
               Check(status, "write");
               absl::MutexLock lock(&mutex);
               --left;
             });
           }
           mutex.LockWhen(absl::Condition(
               +[](std::size_t* writes) { return *writes == 0; }, &left));
           mutex.Unlock();
         });
}

void Measure(const Case& what, const std::string& scratch, Figures& figures) {
  const std::string directory = fmt::format("{}/device-{}", scratch, what.name);
  const std::string fio_file = scratch + "/fio";
  const SystemClock clock;
  const auto tier = Check(NvmeTier::Open(Options(directory, &clock)), "tier");
  Namespace ns;
  ns.id = {1, 1};
  ns.spec.model = "bench";
  ns.spec.layers = what.layers;
  ns.spec.layer_bytes = what.layer_bytes;
  Check(tier->PutNamespace({.ns = ns, .ttl = {}}), "namespace");
  const RecordShape shape{ns.spec.block_tokens, ns.spec.layers, ns.spec.layer_bytes};
  const std::size_t record = shape.record_bytes();
  const Buffer memory(std::max<std::size_t>(kWriteBytes, kReadDepth * record));
  tier->RegisterBuffer(memory.bytes());

  std::vector<NvmeBlock> blocks;
  std::vector<double> ours;
  std::vector<double> fio;
  std::vector<double> ratios;
  std::uint64_t next = 0;
  const std::string write = fmt::format("--rw=write --fallocate=native --unlink=1 --fdatasync={}",
                                        std::min<std::size_t>(kGroupBlocks, kWriteBytes / record));
  for (int round = 0; round < kWriteRounds; ++round) {
    const auto fresh = MakeRecords(ns.id, shape, next, memory.bytes());
    fio.push_back(FioBandwidth(fio_file, record, kWriteBytes, write, true));
    ours.push_back(WriteBandwidth(*tier, fresh, memory.bytes()));
    ratios.push_back(ours.back() / fio.back());
    blocks.insert(blocks.end(), fresh.begin(), fresh.end());
  }
  std::printf("durable writes of %zu KiB: %.0f MiB/s, fio %.0f MiB/s\n", record >> 10, Median(ours) / (1 << 20),
              Median(fio) / (1 << 20));
  const double writes = Median(ratios);

  std::ranges::sort(blocks, {}, &NvmeBlock::key);  // keys are scattered: random order, as fio's randread
  blocks.resize(std::min<std::size_t>(blocks.size(), kReadBytes / record));
  FioBandwidth(fio_file, record, kReadBytes, "--rw=write", true);
  ours.clear();
  fio.clear();
  ratios.clear();
  for (int round = 0; round < kReadRounds; ++round) {
    fio.push_back(FioBandwidth(fio_file, record, kReadBytes, "--rw=randread", false));
    ours.push_back(TierBandwidth(*tier, blocks, memory.bytes()));
    ratios.push_back(ours.back() / fio.back());
  }
  std::printf("reads of %zu KiB, depth %zu, %s: %.0f MiB/s verified, fio %.0f MiB/s\n", record >> 10, kReadDepth,
              tier->Stats().direct_io ? "direct" : "buffered", Median(ours) / (1 << 20), Median(fio) / (1 << 20));
  figures.AtLeast(fmt::format("nvme_read_{}_vs_fio", what.name), Median(ratios), kReadGoal);
  figures.AtLeast(fmt::format("nvme_write_{}_vs_fio", what.name), writes, kWriteGoal);
}

}  // namespace

void DeviceFigures(const std::string& scratch, Figures& figures) {
  for (const Case& what : kCases) Measure(what, scratch, figures);
}

}  // namespace kvist::bench
