// Figures of the store, each a ratio taken in one run, in which both sides alternate. Medians are compared; for the
// device, whose speed drifts, it is the median of the ratios of neighbouring rounds.
//   match_100k_tokens_vs_hash  time to match 100 000 resident tokens / time to hash them alone
//   nvme_read_vs_fio           bandwidth of verified block reads / fio's at the same size and depth
// Usage: store_bench [DIRECTORY on the device to measure; default /var/tmp]. Exits non-zero if a goal is missed.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "bench/figures.h"
#include "cachestore/await.h"
#include "cachestore/io/clock.h"
#include "cachestore/key/key_hasher.h"
#include "cachestore/local_store.h"
#include "cachestore/tier/nvme_tier.h"
#include "fmt/format.h"

namespace kvist {
namespace {

using bench::Median;

constexpr std::size_t kMatchTokens = 100'000;
constexpr int kMatchRounds = 101;
constexpr double kMatchGoal = 3.0;  // at most

constexpr std::size_t kReadBlocks = 160;  // some 225 MiB a round: long enough to leave start-up behind
constexpr std::size_t kReadDepth = 16;
constexpr int kReadRounds = 15;
constexpr double kReadGoal = 0.8;  // at least

[[noreturn]] void Fail(const std::string& what) {
  std::fprintf(stderr, "store_bench: %s\n", what.c_str());
  std::exit(2);
}

template <typename T>
T Check(absl::StatusOr<T> result, const char* what) {
  if (!result.ok()) Fail(fmt::format("{}: {}", what, std::string(result.status().message())));
  return *std::move(result);
}

double Seconds(const std::function<void()>& work) {
  const absl::Time begin = absl::Now();
  work();
  return absl::ToDoubleSeconds(absl::Now() - begin);
}

class ScratchDirectory {
 public:
  explicit ScratchDirectory(const std::string& parent) : path_(parent + "/kvist-bench-XXXXXX") {
    if (mkdtemp(path_.data()) == nullptr) Fail("can't make a directory in " + parent);
  }
  ~ScratchDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::vector<TokenId> Tokens(std::size_t count, std::uint32_t seed) {
  std::vector<TokenId> tokens(count);
  std::uint64_t state = seed;
  for (TokenId& token : tokens) {
    state = state * 6364136223846793005 + 1442695040888963407;
    token = static_cast<TokenId>(state >> 48);
  }
  return tokens;
}

Namespace OpenNs(LocalStore& store, std::uint32_t layers, std::uint64_t layer_bytes) {
  NamespaceSpec spec;
  spec.model = "bench";
  spec.layers = layers;
  spec.layer_bytes = layer_bytes;
  return Check(store.OpenNamespace(spec, {}), "namespace");
}

// Waits out a full DRAM tier: filling is not what is measured.
void CommitChain(LocalStore& store, const Namespace& ns, std::span<const TokenId> tokens) {
  BlockKey parent = ns.id;
  const std::size_t count = ns.spec.block_tokens;
  for (std::size_t at = 0; at + count <= tokens.size(); at += count) {
    auto grant = store.Grant(ns.id);
    if (absl::IsResourceExhausted(grant.status())) {
      if (const auto flushed = AwaitStatus([&](DoneStatus done) { store.Flush({}, std::move(done)); }); !flushed.ok()) {
        Fail(std::string(flushed.message()));
      }
      grant = store.Grant(ns.id);
    }
    WriteGrant slot = Check(std::move(grant), "grant");
    std::fill(slot.payload().begin(), slot.payload().end(), static_cast<std::byte>(at));
    CommitRequest request{.ns = ns.id,
                          .parent = parent,
                          .tokens = {tokens.begin() + static_cast<std::ptrdiff_t>(at),
                                     tokens.begin() + static_cast<std::ptrdiff_t>(at + count)},
                          .grant = std::move(slot),
                          .durability = Durability::kMemory};
    parent = Check(Await<BlockKey>([&](Done<BlockKey> done) { store.Commit(std::move(request), {}, std::move(done)); }),
                   "commit");
  }
}

std::unique_ptr<LocalStore> OpenStore(const std::string& directory, std::uint64_t dram_bytes) {
  LocalStoreOptions options;
  options.nvme.directory = directory;
  options.nvme.capacity_bytes = std::uint64_t{1} << 30;
  options.nvme.segment_bytes = std::uint64_t{64} << 20;
  options.dram_bytes = dram_bytes;
  return Check(LocalStore::Open(options), "store");
}

double MatchSeconds(LocalStore& store, const Namespace& ns, std::span<const TokenId> tokens) {
  return Seconds([&] {
    store.Match(ns.id, tokens, {}, [&](const absl::StatusOr<PrefixMatch>& match) {
      if (!match.ok() || match->blocks() != tokens.size() / ns.spec.block_tokens) Fail("the chain is not resident");
    });
  });
}

void MatchFigure(const std::string& scratch, bench::Figures& figures) {
  const std::string directory = scratch + "/match";
  const auto tokens = Tokens(kMatchTokens, 1);
  const KeyHasher hasher(KeyHasher::Secret{});
  auto store = OpenStore(directory, std::uint64_t{64} << 20);
  const Namespace ns = OpenNs(*store, 1, 4096);  // the payload's size plays no part in a match
  CommitChain(*store, ns, tokens);
  const auto measure = [&](const char* where) {
    std::vector<double> match;
    std::vector<double> hash;
    for (int round = 0; round < kMatchRounds; ++round) {
      hash.push_back(Seconds([&] {
        if (hasher.Chain(ns.id, tokens, ns.spec.block_tokens).back() == BlockKey{}) Fail("a zero key");
      }));
      match.push_back(MatchSeconds(*store, ns, tokens));
    }
    const double ratio = Median(match) / Median(hash);
    std::printf("match of %zu tokens in %s: %.1f us, hashing them %.1f us: %.2f\n", kMatchTokens, where,
                Median(match) * 1e6, Median(hash) * 1e6, ratio);
    return ratio;
  };
  const double in_dram = measure("DRAM");
  store.reset();
  store = OpenStore(directory, std::uint64_t{64} << 20);
  const double on_nvme = measure("NVMe");
  figures.AtMost("match_100k_tokens_vs_hash", std::max(in_dram, on_nvme), kMatchGoal);
}

// Bytes per second of reading and verifying every block once, kReadDepth at a time.
double TierBandwidth(NvmeTier& tier, const std::vector<NvmeBlock>& blocks, std::span<std::byte> buffers) {
  absl::Mutex mutex;
  std::size_t finished = 0;
  std::vector<std::size_t> free_buffers(kReadDepth);
  std::iota(free_buffers.begin(), free_buffers.end(), std::size_t{0});
  const std::size_t record = blocks[0].record_bytes;
  const double seconds = Seconds([&] {
    for (const NvmeBlock& block : blocks) {
      mutex.LockWhen(absl::Condition(+[](std::vector<std::size_t>* buffer) { return !buffer->empty(); }, &free_buffers));
      const std::size_t buffer = free_buffers.back();
      free_buffers.pop_back();
      mutex.Unlock();
      tier.Read(block.key, buffers.subspan(buffer * record, record), [&, buffer](const absl::Status& status) {
        if (!status.ok()) Fail("read: " + std::string(status.message()));
        absl::MutexLock lock(&mutex);
        free_buffers.push_back(buffer);
        ++finished;
      });
    }
    mutex.LockWhen(absl::Condition(+[](std::size_t* count) { return *count == kReadBlocks; }, &finished));
    mutex.Unlock();
  });
  return static_cast<double>(record * blocks.size()) / seconds;
}

// fio's read bandwidth in bytes per second; writes its file first if `lay_out`.
double FioBandwidth(const std::string& file, std::size_t record_bytes, bool lay_out) {
  const std::string command = fmt::format(
      "fio --name=kvist --filename={} --rw={} --bs={} --size={} --direct=1 --ioengine=io_uring --iodepth={} "
      "--invalidate=1 --output-format=terse --terse-version=3 2>/dev/null",
      file, lay_out ? "write" : "randread", record_bytes, record_bytes * kReadBlocks, kReadDepth);
  std::FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) Fail("can't run fio");
  std::string output;
  std::array<char, 4096> buffer;
  while (std::fgets(buffer.data(), buffer.size(), pipe) != nullptr) output += buffer.data();
  if (pclose(pipe) != 0) Fail("fio failed (is it installed?): " + output);
  // Terse version 3: field 7 is the read bandwidth in KiB/s.
  std::size_t at = output.find("3;");
  for (int field = 1; field < 7 && at != std::string::npos; ++field) at = output.find(';', at) + 1;
  return lay_out ? 0 : std::strtod(output.c_str() + at, nullptr) * 1024;
}

void ReadFigure(const std::string& scratch, bench::Figures& figures) {
  // SmolLM2-135M: 30 layers of 64 tokens x 3 KV heads x 64 dims x (K and V) in F16.
  constexpr std::uint32_t kLayers = 30;
  constexpr std::uint64_t kLayerBytes = 64 * 3 * 64 * 2 * 2;
  const std::string directory = scratch + "/read";
  {
    auto store = OpenStore(directory, std::uint64_t{64} << 20);
    const Namespace ns = OpenNs(*store, kLayers, kLayerBytes);
    CommitChain(*store, ns, Tokens(kReadBlocks * ns.spec.block_tokens, 2));
  }
  const SystemClock clock;
  NvmeTierOptions options;
  options.directory = directory;
  options.capacity_bytes = std::uint64_t{1} << 30;
  options.segment_bytes = std::uint64_t{64} << 20;
  options.queue_depth = kReadDepth;
  options.clock = &clock;
  const auto tier = Check(NvmeTier::Open(options), "tier");
  std::vector<NvmeBlock> blocks;
  tier->ForEach([&](const NvmeBlock& block) { blocks.push_back(block); });
  if (blocks.size() != kReadBlocks) Fail(fmt::format("{} of {} blocks on NVMe", blocks.size(), kReadBlocks));
  std::ranges::sort(blocks, {}, &NvmeBlock::key);  // keys are digests: random order, as fio's randread

  const std::size_t record = blocks[0].record_bytes;
  const std::size_t bytes = record * kReadDepth;
  const std::unique_ptr<void, decltype(&std::free)> memory(std::aligned_alloc(4096, bytes), &std::free);
  const std::span<std::byte> buffers(static_cast<std::byte*>(memory.get()), bytes);
  std::ranges::fill(buffers, std::byte{1});
  tier->RegisterBuffer(buffers);

  const std::string fio_file = scratch + "/fio";
  FioBandwidth(fio_file, record, true);
  std::vector<double> ours;
  std::vector<double> fio;
  std::vector<double> ratios;
  for (int round = 0; round < kReadRounds; ++round) {
    fio.push_back(FioBandwidth(fio_file, record, false));
    ours.push_back(TierBandwidth(*tier, blocks, buffers));
    ratios.push_back(ours.back() / fio.back());
  }
  std::printf("reads of %.2f MiB, depth %zu, %s: %.0f MiB/s verified, fio %.0f MiB/s\n",
              static_cast<double>(record) / (1 << 20), kReadDepth, tier->Stats().direct_io ? "direct" : "buffered",
              Median(ours) / (1 << 20), Median(fio) / (1 << 20));
  figures.AtLeast("nvme_read_vs_fio", Median(ratios), kReadGoal);
}

int Main(const std::string& parent) {
  bench::Figures figures;
  const ScratchDirectory scratch(parent);
  MatchFigure(scratch.path(), figures);
  ReadFigure(scratch.path(), figures);
  return figures.Report();
}

}  // namespace
}  // namespace kvist

int main(int argc, char** argv) { return kvist::Main(argc > 1 ? argv[1] : "/var/tmp"); }
