// The DRAM tier, one block of 1 MiB after another:
//   dram_put_vs_memcpy_hash  memcpy + XXH3 of the payload / Grant, copying it in, Commit (key and checksums included)
//   dram_get_vs_memcpy       memcpy of the payload / Acquire, copying it out, release
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cstring>

#include "bench/store/support.h"
#include "cachestore/await.h"

namespace kvist::bench {
namespace {

constexpr std::uint32_t kLayers = 32;
constexpr std::uint64_t kLayerBytes = std::uint64_t{32} << 10;
constexpr std::size_t kPayload = kLayers * kLayerBytes;
constexpr std::size_t kBlocks = 256;
constexpr int kRounds = 9;
constexpr double kPutGoal = 0.8;
constexpr double kGetGoal = 0.9;

double PutSeconds(LocalStore& store, const Namespace& ns, std::span<const TokenId> tokens,
                  std::span<const std::byte> source) {
  return Seconds([&] {
    BlockKey parent = ns.id;
    for (std::size_t i = 0; i < kBlocks; ++i) {
      WriteGrant slot = Check(store.Grant(ns.id), "grant");
      std::memcpy(slot.payload().data(), source.data() + i * kPayload, kPayload);
      const auto at = tokens.begin() + static_cast<std::ptrdiff_t>(i * ns.spec.block_tokens);
      CommitRequest request{.ns = ns.id,
                            .parent = parent,
                            .tokens = {at, at + ns.spec.block_tokens},
                            .grant = std::move(slot),
                            .durability = Durability::kMemory};
      parent =
          Check(Await<BlockKey>([&](Done<BlockKey> done) { store.Commit(std::move(request), {}, std::move(done)); }),
                "commit");
    }
  });
}

double GetSeconds(LocalStore& store, const Namespace& ns, std::span<const TokenId> tokens, std::span<std::byte> out) {
  return Seconds([&] {
    const Lease lease = Check(
        Await<Lease>([&](Done<Lease> done) { store.Acquire(ns.id, tokens, kBlocks, {}, std::move(done)); }), "acquire");
    if (lease.blocks().size() != kBlocks) Fail("not all blocks are resident");
    for (std::size_t i = 0; i < kBlocks; ++i) {
      std::memcpy(out.data() + i * kPayload, lease.blocks()[i].payload.data(), kPayload);
    }
  });
}

}  // namespace

void DramFigures(const std::string& scratch, Figures& figures) {
  auto store = OpenStore(scratch + "/dram", 3 * kBlocks * (kPayload + 8192));
  const Namespace ns = OpenNs(*store, kLayers, kLayerBytes);
  const Buffer source(kBlocks * kPayload);
  const Buffer target(kBlocks * kPayload);
  std::uint64_t sum = 0;
  std::vector<double> put;
  std::vector<double> put_reference;
  std::vector<double> get;
  std::vector<double> get_reference;
  for (int round = 0; round < kRounds; ++round) {
    const auto tokens = Tokens(kBlocks * ns.spec.block_tokens, static_cast<std::uint32_t>(round));
    // Write-back is not what is measured: it ends before each side begins.
    Check(AwaitStatus([&](DoneStatus done) { store->Flush({}, std::move(done)); }), "flush");
    put_reference.push_back(Seconds([&] {
      for (std::size_t i = 0; i < kBlocks; ++i) {
        std::memcpy(target.bytes().data() + i * kPayload, source.bytes().data() + i * kPayload, kPayload);
        sum += XXH3_64bits(target.bytes().data() + i * kPayload, kPayload);
      }
    }));
    put.push_back(PutSeconds(*store, ns, tokens, source.bytes()));
    Check(AwaitStatus([&](DoneStatus done) { store->Flush({}, std::move(done)); }), "flush");
    get_reference.push_back(Seconds([&] {
      for (std::size_t i = 0; i < kBlocks; ++i) {
        std::memcpy(target.bytes().data() + i * kPayload, source.bytes().data() + i * kPayload, kPayload);
      }
    }));
    get.push_back(GetSeconds(*store, ns, tokens, target.bytes()));
  }
  if (sum == 0) Fail("the reference was left out");
  const double mib = static_cast<double>(kBlocks * kPayload) / (1 << 20);
  std::printf("DRAM put of %zu blocks: %.0f MiB/s, memcpy + XXH3 %.0f MiB/s; get %.0f MiB/s, memcpy %.0f MiB/s\n",
              kBlocks, mib / Median(put), mib / Median(put_reference), mib / Median(get), mib / Median(get_reference));
  figures.AtLeast("dram_put_vs_memcpy_hash", Median(put_reference) / Median(put), kPutGoal);
  figures.AtLeast("dram_get_vs_memcpy", Median(get_reference) / Median(get), kGetGoal);
}

}  // namespace kvist::bench
