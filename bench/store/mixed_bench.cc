// Reads while blocks are written: how much longer than usual the slowest take.
//   nvme_get_p99_vs_p50_SIZE  p99 / p50 of verified single-block reads, one at a time, while as many bytes are put,
//                             durable, in bursts as a prompt's blocks come
#include <algorithm>
#include <array>
#include <atomic>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "bench/store/support.h"
#include "cachestore/io/clock.h"
#include "cachestore/tier/nvme_tier.h"

namespace kvist::bench {
namespace {

constexpr double kGoal = 5;
constexpr std::uint64_t kResidentBytes = std::uint64_t{1} << 30;
constexpr std::uint64_t kBurstBytesMax = std::uint64_t{64} << 20;
constexpr std::size_t kBurstBlocks = 64;

struct Case {
  const char* name;
  std::uint64_t payload_bytes;
  std::size_t reads;
};
constexpr std::array kCases = {Case{"4k", 4 << 10, 6000}, Case{"128k", 128 << 10, 6000}, Case{"1m", 1 << 20, 2500},
                               Case{"4m", 4 << 20, 1200}};

class Mixed {
 public:
  Mixed(const std::string& directory, const Case& what) : what_(what) {
    NvmeTierOptions options;
    options.directory = directory;
    options.capacity_bytes = std::uint64_t{16} << 30;
    options.clock = &clock_;
    tier_ = bench::Check(NvmeTier::Open(options), "tier");
    ns_.id = {1, 1};
    ns_.spec.model = "bench";
    ns_.spec.layers = 1;
    ns_.spec.layer_bytes = what.payload_bytes;
    bench::Check(tier_->PutNamespace({.ns = ns_, .ttl = {}}), "namespace");
    shape_ = {ns_.spec.block_tokens, ns_.spec.layers, ns_.spec.layer_bytes};
    burst_ = std::min<std::size_t>(kBurstBlocks, kBurstBytesMax / shape_.record_bytes());
    memory_ = std::make_unique<Buffer>((burst_ + 1) * shape_.record_bytes());
    tier_->RegisterBuffer(memory_->bytes());
    const std::uint64_t count = std::min<std::uint64_t>(kResidentBytes / shape_.record_bytes(), 20'000);
    while (written_ < count) Burst();
    AwaitBurst();
  }

  // Sorted durations of reads; with as many puts, or none.
  std::vector<double> Reads(bool puts) {
    std::vector<double> seconds;
    const std::uint64_t resident = written_;
    for (std::size_t i = 0; i < what_.reads; ++i) {
      if (puts && i % burst_ == 0) Burst();
      const std::uint64_t block = (i * 7919 + 1) % resident + 1;  // a prime's multiples: all over the device
      absl::Notification read;
      seconds.push_back(Seconds([&] {
        tier_->Read(Key(block), Record(burst_), [&](const absl::Status& status) {
          bench::Check(status, "read");
          read.Notify();
        });
        read.WaitForNotification();
      }));
    }
    AwaitBurst();
    std::ranges::sort(seconds);
    return seconds;
  }

 private:
  static BlockKey Key(std::uint64_t block) { return {block * 0x9E3779B97F4A7C15, block}; }
  std::span<std::byte> Record(std::size_t index) {
    return memory_->bytes().subspan(index * shape_.record_bytes(), shape_.record_bytes());
  }

  void AwaitBurst() {
    while (pending_ > 0) absl::SleepFor(absl::Microseconds(200));
  }

  // Puts the next blocks, once the last ones are durable: a closed loop, as a store under load is.
  void Burst() {
    AwaitBurst();
    const auto tokens = Tokens(shape_.block_tokens, 3);
    pending_ = burst_;
    for (std::size_t i = 0; i < burst_; ++i) {
      ++written_;
      NvmeBlock block{.ns = ns_.id,
                      .key = Key(written_),
                      .parent = ns_.id,
                      .record_bytes = shape_.record_bytes(),
                      .expires_unix_s = std::int64_t{1} << 31};
      RecordHeader header;
      header.ns = ns_.id;
      header.parent = ns_.id;
      header.key = block.key;
      header.shape = shape_;
      header.expires_unix_s = block.expires_unix_s;
      SealRecord(Record(i), header, tokens);
      tier_->Write(block, Record(i), [this](const absl::Status& status) {
        bench::Check(status, "write");
        --pending_;
      });
    }
  }

  const Case what_;
  const SystemClock clock_;
  std::unique_ptr<NvmeTier> tier_;
  Namespace ns_;
  RecordShape shape_;
  std::size_t burst_ = 0;
  std::unique_ptr<Buffer> memory_;
  std::uint64_t written_ = 0;
  std::atomic<std::size_t> pending_ = 0;
};

double At(const std::vector<double>& sorted, double share) {
  return sorted[static_cast<std::size_t>(share * static_cast<double>(sorted.size() - 1))];
}

}  // namespace

void MixedFigures(const std::string& scratch, Figures& figures) {
  for (const Case& what : kCases) {
    Mixed mixed(fmt::format("{}/mixed-{}", scratch, what.name), what);
    const std::vector<double> alone = mixed.Reads(false);
    const std::vector<double> loaded = mixed.Reads(true);
    std::printf("reads of %s: p50 %.2f ms, p99 %.2f ms; with as many puts: p50 %.2f ms, p99 %.2f ms, p99.9 %.2f ms\n",
                what.name, At(alone, 0.5) * 1e3, At(alone, 0.99) * 1e3, At(loaded, 0.5) * 1e3, At(loaded, 0.99) * 1e3,
                At(loaded, 0.999) * 1e3);
    figures.AtMost(fmt::format("nvme_get_p99_vs_p50_{}", what.name), At(loaded, 0.99) / At(loaded, 0.5), kGoal);
  }
}

}  // namespace kvist::bench
