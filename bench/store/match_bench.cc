// Matching, that is finding out how much of a prompt is resident:
//   match_128k_tokens_vs_hash  time to match 128 Ki resident tokens / time to hash them alone
//   miss_vs_multiget           RocksDB's MultiGet of a prompt's absent keys / matching that prompt
#include <rocksdb/db.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/table.h>

#include <algorithm>

#include "bench/store/support.h"
#include "cachestore/index/index_records.h"
#include "cachestore/key/key_hasher.h"

namespace kvist::bench {
namespace {

constexpr std::size_t kMatchTokens = 131'072;
constexpr int kMatchRounds = 101;
constexpr double kMatchGoal = 1.5;  // at most
constexpr double kMissGoal = 10;    // at least
constexpr std::size_t kBlocksInDatabase = 200'000;

double MatchSeconds(LocalStore& store, const Namespace& ns, std::span<const TokenId> tokens) {
  return Seconds([&] {
    store.Match(ns.id, tokens, {}, [&](const absl::StatusOr<PrefixMatch>& match) {
      if (!match.ok() || match->blocks() != tokens.size() / ns.spec.block_tokens) Fail("the chain is not resident");
    });
  });
}

void HitFigure(const std::string& scratch, Figures& figures) {
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
  figures.AtMost("match_128k_tokens_vs_hash", std::max(in_dram, on_nvme), kMatchGoal);
}

// The same many blocks in RocksDB as an index, with a bloom filter and all of it in its cache.
std::unique_ptr<rocksdb::DB> FillDatabase(const std::string& directory) {
  rocksdb::Options options;
  options.create_if_missing = true;
  rocksdb::BlockBasedTableOptions table;
  table.block_cache = rocksdb::NewLRUCache(std::size_t{256} << 20);
  table.filter_policy.reset(rocksdb::NewBloomFilterPolicy(10));
  options.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
  rocksdb::DB* db = nullptr;
  if (!rocksdb::DB::Open(options, directory, &db).ok()) Fail("RocksDB does not open");
  std::unique_ptr<rocksdb::DB> owned(db);
  const KeyHasher hasher(KeyHasher::Secret{});
  BlockKey key;
  for (std::size_t i = 0; i < kBlocksInDatabase; ++i) {
    const std::vector<TokenId> token = {static_cast<TokenId>(i)};
    key = hasher.Next(key, token);
    if (!owned->Put({}, EncodeDigest(key), EncodeBlockEntry({})).ok()) Fail("RocksDB does not write");
  }
  if (!owned->Flush({}).ok()) Fail("RocksDB does not flush");
  return owned;
}

void MissFigure(const std::string& scratch, Figures& figures) {
  auto store = OpenStore(scratch + "/miss", std::uint64_t{64} << 20);
  const Namespace ns = OpenNs(*store, 1, 4096);
  CommitChain(*store, ns, Tokens(kMatchTokens, 1));
  const auto db = FillDatabase(scratch + "/rocksdb");
  const KeyHasher hasher(KeyHasher::Secret{});
  std::vector<double> ours;
  std::vector<double> theirs;
  for (int round = 0; round < kMatchRounds; ++round) {
    const auto tokens = Tokens(kMatchTokens, static_cast<std::uint32_t>(1000 + round));
    ours.push_back(Seconds([&] {
      store->Match(ns.id, tokens, {}, [&](const absl::StatusOr<PrefixMatch>& match) {
        if (!match.ok() || match->blocks() != 0) Fail("a hit where nothing is");
      });
    }));
    theirs.push_back(Seconds([&] {
      std::vector<std::string> keys;
      for (const BlockKey& key : hasher.Chain(ns.id, tokens, ns.spec.block_tokens)) keys.push_back(EncodeDigest(key));
      const std::vector<rocksdb::Slice> slices(keys.begin(), keys.end());
      std::vector<std::string> values;
      if (!db->MultiGet({}, slices, &values)[0].IsNotFound()) Fail("RocksDB found what is not there");
    }));
  }
  std::printf("miss of %zu tokens: %.1f us, by MultiGet %.1f us\n", kMatchTokens, Median(ours) * 1e6,
              Median(theirs) * 1e6);
  figures.AtLeast("miss_vs_multiget", Median(theirs) / Median(ours), kMissGoal);
}

}  // namespace

void MatchFigures(const std::string& scratch, Figures& figures) {
  HitFigure(scratch, figures);
  MissFigure(scratch, figures);
}

}  // namespace kvist::bench
