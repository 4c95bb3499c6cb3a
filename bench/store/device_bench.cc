// The NVMe tier against fio on the same device, at the same size and depth, rounds alternating:
//   nvme_read_SIZE_vs_fio   bandwidth of verified block reads / fio's random reads (io_uring, direct) of the same files
//   nvme_write_SIZE_vs_fio  bandwidth of durable block writes / fio's, with an fdatasync as often as the tier has one
#include <algorithm>
#include <array>
#include <atomic>
#include <filesystem>

#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/mutex.h"
#include "bench/store/support.h"
#include "cachestore/io/clock.h"
#include "cachestore/tier/nvme_tier.h"

namespace kvist::bench {
namespace {

constexpr std::size_t kReadDepth = 16;
constexpr std::uint64_t kReadBytes = std::uint64_t{224} << 20;  // a round: long enough to leave start-up behind
constexpr int kReadRounds = 25;
constexpr double kReadGoal = 0.97;

constexpr std::uint64_t kWriteBytes = std::uint64_t{512} << 20;  // a round
// The tier's own bounds of a group (nvme_writer.cc). It may take several for one sync, but no more often than fio.
constexpr std::size_t kGroupBlocks = 512;
constexpr std::uint64_t kGroupBytes = std::uint64_t{32} << 20;
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
  options.capacity_bytes = std::uint64_t{8} << 30;
  options.segment_bytes = std::uint64_t{128} << 20;
  options.queue_depth = kReadDepth;
  options.write_queue_limit = 1 << 16;
  options.clock = clock;
  return options;
}

// Reads and verifies every block once, kReadDepth at a time: each completion begins the next read, as in an
// acquisition.
class Reads {
 public:
  Reads(NvmeTier* tier, std::span<const NvmeBlock> blocks, std::span<std::byte> buffers)
      : tier_(*tier), blocks_(blocks), buffers_(buffers) {}

  void Run() {
    for (std::size_t buffer = 0; buffer < kReadDepth; ++buffer) Next(buffer);
    done_.Wait();
  }

 private:
  void Next(std::size_t buffer) {
    const std::size_t index = next_++;
    if (index >= blocks_.size()) {
      done_.DecrementCount();
      return;
    }
    const std::size_t record = blocks_[0].record_bytes;
    tier_.Read(blocks_[index].key, buffers_.subspan(buffer * record, record), [this, buffer](const absl::Status& s) {
      Check(s, "read");
      Next(buffer);
    });
  }

  NvmeTier& tier_;
  const std::span<const NvmeBlock> blocks_;
  const std::span<std::byte> buffers_;
  std::atomic<std::size_t> next_ = 0;
  absl::BlockingCounter done_{kReadDepth};
};

double TierBandwidth(NvmeTier& tier, const std::vector<NvmeBlock>& blocks, std::span<std::byte> buffers) {
  Reads reads(&tier, blocks, buffers);
  return static_cast<double>(blocks[0].record_bytes * blocks.size()) / Seconds([&] { reads.Run(); });
}

// Bytes per second that fio moves; `what`: its own options.
double FioBandwidth(std::size_t block_bytes, const std::string& what, bool writes) {
  const std::string command = fmt::format(
      "fio --name=kvist {} --bs={} --direct=1 --ioengine=io_uring --iodepth={} --invalidate=1 "
      "--output-format=terse --terse-version=3 2>/dev/null",
      what, block_bytes, kReadDepth);
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

// As fio takes several: joined by colons.
std::string SegmentFiles(const std::string& directory) {
  std::string files;
  for (const auto& file : std::filesystem::directory_iterator(directory + "/segments")) {
    files += (files.empty() ? "" : ":") + file.path().string();
  }
  return files;
}

std::uint64_t SegmentBytes(const std::string& directory) {
  std::uint64_t bytes = 0;
  for (const auto& file : std::filesystem::directory_iterator(directory + "/segments")) bytes += file.file_size();
  return bytes;
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
  const std::string write =
      fmt::format("--filename={}/fio --rw=write --size={} --fallocate=native --unlink=1 --fdatasync={}", scratch,
                  kWriteBytes / record * record, std::min<std::size_t>(kGroupBlocks, kGroupBytes / record));
  for (int round = 0; round < kWriteRounds; ++round) {
    const auto fresh = MakeRecords(ns.id, shape, next, memory.bytes());
    fio.push_back(FioBandwidth(record, write, true));
    ours.push_back(WriteBandwidth(*tier, fresh, memory.bytes()));
    ratios.push_back(ours.back() / fio.back());
    blocks.insert(blocks.end(), fresh.begin(), fresh.end());
  }
  std::printf("durable writes of %zu KiB: %.0f MiB/s, fio %.0f MiB/s\n", record >> 10, Median(ours) / (1 << 20),
              Median(fio) / (1 << 20));
  const double writes = Median(ratios);

  std::ranges::sort(blocks, {}, &NvmeBlock::key);  // keys are scattered: random order, as fio's randread
  blocks.resize(std::min<std::size_t>(blocks.size(), kReadBytes / record));
  const std::string read = fmt::format("--filename={} --rw=randread --readonly --size={} --io_size={}",
                                       SegmentFiles(directory), SegmentBytes(directory), blocks.size() * record);
  ours.clear();
  fio.clear();
  ratios.clear();
  for (int round = 0; round < kReadRounds; ++round) {
    fio.push_back(FioBandwidth(record, read, false));
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
