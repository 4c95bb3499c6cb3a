#include "bench/store/support.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "absl/time/clock.h"
#include "cachestore/await.h"

namespace kvist::bench {

void Fail(const std::string& what) {
  std::fprintf(stderr, "store_bench: %s\n", what.c_str());
  std::exit(2);
}

void Check(const absl::Status& status, const char* what) {
  if (!status.ok()) Fail(fmt::format("{}: {}", what, std::string(status.message())));
}

double Seconds(const std::function<void()>& work) {
  const absl::Time begin = absl::Now();
  work();
  return absl::ToDoubleSeconds(absl::Now() - begin);
}

ScratchDirectory::ScratchDirectory(const std::string& parent) : path_(parent + "/kvist-bench-XXXXXX") {
  if (mkdtemp(path_.data()) == nullptr) Fail("can't make a directory in " + parent);
}

ScratchDirectory::~ScratchDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

Buffer::Buffer(std::size_t bytes)
    : memory_(std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096), &std::free),
      bytes_(static_cast<std::byte*>(memory_.get()), bytes) {
  std::ranges::fill(bytes_, std::byte{1});
}

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

}  // namespace kvist::bench
