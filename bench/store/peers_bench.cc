// The whole store beside stores that people keep KV blocks in today, the same blocks on the same device, alternately:
//   put_SIZE_vs_PEER   the peer's time to make a prompt's blocks durable / ours
//   get_SIZE_vs_PEER   the peer's time to read them with nothing in memory / ours, which checks every byte as well
// Ours hands blocks out in place; the peers copy into the consumer's buffer.
#include <algorithm>
#include <array>
#include <cstring>
#include <map>

#include "absl/synchronization/blocking_counter.h"
#include "bench/store/peer.h"
#include "bench/store/support.h"
#include "cachestore/await.h"

namespace kvist::bench {
namespace {

constexpr std::uint64_t kRoundBytes = std::uint64_t{256} << 20;
constexpr int kRounds = 7;
constexpr double kGoal = 1;  // ahead

struct Case {
  const char* name;
  std::uint32_t layers;
  std::uint64_t layer_bytes;
};
constexpr std::array kCases = {Case{"128k", 32, 4096}, Case{"1_4m", 30, 64 * 3 * 64 * 2 * 2}};

class Ours {
 public:
  Ours(std::string directory, const Case& what) : directory_(std::move(directory)), what_(what) { Open(); }

  std::size_t payload_bytes() const { return ns_.spec.payload_bytes(); }

  void PutDurable(int round, std::span<const std::byte> source) {
    const std::size_t blocks = source.size() / payload_bytes();
    const auto tokens = RoundTokens(round, blocks);
    absl::BlockingCounter left(static_cast<int>(blocks));
    BlockKey parent = ns_.id;
    for (std::size_t i = 0; i < blocks; ++i) {
      WriteGrant slot = Check(store_->Grant(ns_.id), "grant");
      std::memcpy(slot.payload().data(), source.data() + i * payload_bytes(), payload_bytes());
      const auto at = tokens.begin() + static_cast<std::ptrdiff_t>(i * ns_.spec.block_tokens);
      CommitRequest request{.ns = ns_.id,
                            .parent = parent,
                            .tokens = {at, at + ns_.spec.block_tokens},
                            .grant = std::move(slot),
                            .durability = Durability::kDurable};
      parent = hasher_->Next(parent, request.tokens);
      store_->Commit(std::move(request), {}, [&left](const absl::StatusOr<BlockKey>& key) {
        Check(key.status(), "commit");
        left.DecrementCount();
      });
    }
    left.Wait();
  }

  void Cool() {
    store_.reset();
    Open();
  }

  void Get(int round, std::size_t blocks) {
    const auto tokens = RoundTokens(round, blocks);
    const Lease lease =
        Check(Await<Lease>([&](Done<Lease> done) { store_->Acquire(ns_.id, tokens, blocks, {}, std::move(done)); }),
              "acquire");
    if (lease.blocks().size() != blocks) Fail("not all blocks are there");
  }

 private:
  std::vector<TokenId> RoundTokens(int round, std::size_t blocks) const {
    return Tokens(blocks * ns_.spec.block_tokens, static_cast<std::uint32_t>(round + 1));
  }
  void Open() {
    LocalStoreOptions options;
    options.nvme.directory = directory_;
    options.nvme.capacity_bytes = std::uint64_t{4} << 30;
    options.nvme.segment_bytes = std::uint64_t{256} << 20;
    options.nvme.secret = KeyHasher::Secret{};
    options.dram_bytes = 2 * kRoundBytes;
    store_ = Check(LocalStore::Open(options), "store");
    ns_ = OpenNs(*store_, what_.layers, what_.layer_bytes);
    hasher_ = std::make_unique<KeyHasher>(KeyHasher::Secret{});
  }

  const std::string directory_;
  const Case what_;
  std::unique_ptr<LocalStore> store_;
  std::unique_ptr<KeyHasher> hasher_;
  Namespace ns_;
};

void Measure(const Case& what, const std::string& scratch, Figures& figures) {
  Ours ours(fmt::format("{}/ours-{}", scratch, what.name), what);
  std::vector<std::unique_ptr<Peer>> peers;
  peers.push_back(MakeFilesPeer(fmt::format("{}/files-{}", scratch, what.name)));
  peers.push_back(MakeBlobDbPeer(fmt::format("{}/blobdb-{}", scratch, what.name)));
  const std::size_t block = ours.payload_bytes();
  const std::size_t blocks = kRoundBytes / block;
  const Buffer source(blocks * block);
  const Buffer target(blocks * block);
  std::vector<double> put;
  std::vector<double> get;
  std::map<std::string_view, std::vector<double>> peers_put;
  std::map<std::string_view, std::vector<double>> peers_get;
  for (int round = 0; round < kRounds; ++round) {
    for (std::size_t i = 0; i < blocks; ++i) {
      std::memset(source.bytes().data() + i * block, static_cast<int>(i + static_cast<std::size_t>(round)), block);
    }
    put.push_back(Seconds([&] { ours.PutDurable(round, source.bytes()); }));
    ours.Cool();
    get.push_back(Seconds([&] { ours.Get(round, blocks); }));
    for (const auto& peer : peers) {
      peers_put[peer->name()].push_back(Seconds([&] { peer->PutDurable(round, source.bytes(), block); }));
      peer->Cool(round, blocks);
      peers_get[peer->name()].push_back(Seconds([&] { peer->Get(round, target.bytes(), block); }));
      if (std::memcmp(source.bytes().data(), target.bytes().data(), blocks * block) != 0) Fail("a peer's bytes differ");
    }
  }
  const double mib = static_cast<double>(blocks * block) / (1 << 20);
  std::printf("%zu blocks of %zu KiB: durable put %.0f MiB/s, cold get %.0f MiB/s\n", blocks, block >> 10,
              mib / Median(put), mib / Median(get));
  for (const auto& peer : peers) {
    const double peer_put = Median(peers_put[peer->name()]);
    const double peer_get = Median(peers_get[peer->name()]);
    std::printf("  %s: durable put %.0f MiB/s, cold get %.0f MiB/s\n", std::string(peer->name()).c_str(),
                mib / peer_put, mib / peer_get);
    figures.AtLeast(fmt::format("put_{}_vs_{}", what.name, peer->name()), peer_put / Median(put), kGoal);
    figures.AtLeast(fmt::format("get_{}_vs_{}", what.name, peer->name()), peer_get / Median(get), kGoal);
  }
}

}  // namespace

void PeerFigures(const std::string& scratch, Figures& figures) {
  for (const Case& what : kCases) Measure(what, scratch, figures);
}

}  // namespace kvist::bench
