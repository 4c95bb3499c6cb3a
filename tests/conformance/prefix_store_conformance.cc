#include "tests/conformance/prefix_store_conformance.h"

#include <atomic>
#include <functional>
#include <thread>

#include "absl/time/clock.h"
#include "fmt/format.h"

namespace kvist {
namespace {

constexpr std::size_t kBlockTokens = 16;  // TestSpec's

std::span<const TokenId> First(const std::vector<TokenId>& tokens, std::size_t blocks) {
  return std::span(tokens).first(blocks * kBlockTokens);
}

TEST_P(PrefixStoreConformance, GivesBackExactlyTheBytesPut) {
  Open();
  const Namespace ns = OpenNs();
  const auto tokens = TestChain(1, 5);
  ASSERT_TRUE(CommitChain(*store_, ns, tokens).ok());
  const auto lease = AcquireNow(*store_, ns, tokens);
  ASSERT_TRUE(lease.ok()) << lease.status();
  EXPECT_EQ(lease->blocks().size(), 5u);
  EXPECT_TRUE(LeaseIsExact(*lease, ns, tokens));
  for (const Lease::Block& block : lease->blocks()) {
    EXPECT_EQ(block.source, Tier::kDram);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block.payload.data()) % 4096, 0u);
  }
}

TEST_P(PrefixStoreConformance, MatchesOnlyTheCommonPrefix) {
  Open();
  const Namespace ns = OpenNs();
  const auto tokens = TestChain(1, 6);
  ASSERT_TRUE(CommitChain(*store_, ns, tokens).ok());
  for (std::size_t changed = 0; changed < tokens.size(); changed += 7) {
    auto other = tokens;
    ++other[changed];
    EXPECT_EQ(MatchedBlocks(*store_, ns, other), changed / kBlockTokens);
    const auto lease = AcquireNow(*store_, ns, other);
    ASSERT_TRUE(lease.ok());
    EXPECT_EQ(lease->blocks().size(), changed / kBlockTokens);
    EXPECT_TRUE(LeaseIsExact(*lease, ns, other));
  }
}

TEST_P(PrefixStoreConformance, CountsOnlyFullBlocksAroundTheirBoundary) {
  Open();
  const Namespace ns = OpenNs();
  for (const std::size_t length : {kBlockTokens - 1, kBlockTokens, kBlockTokens + 1, 2 * kBlockTokens}) {
    const auto tokens = TestTokens(static_cast<std::uint32_t>(100 + length), length);
    const auto keys = CommitChain(*store_, ns, tokens);
    ASSERT_TRUE(keys.ok()) << keys.status();
    EXPECT_EQ(keys->size(), length / kBlockTokens);
    EXPECT_EQ(MatchedBlocks(*store_, ns, tokens), length / kBlockTokens) << length;
    const auto lease = AcquireNow(*store_, ns, tokens);
    ASSERT_TRUE(lease.ok());
    EXPECT_EQ(lease->blocks().size(), length / kBlockTokens);
    EXPECT_TRUE(LeaseIsExact(*lease, ns, tokens));
  }
}

TEST_P(PrefixStoreConformance, LeasesAtMostWhatWasAskedFor) {
  Open();
  const Namespace ns = OpenNs();
  const auto tokens = TestChain(1, 4);
  ASSERT_TRUE(CommitChain(*store_, ns, tokens).ok());
  for (std::size_t most = 0; most <= 5; ++most) {
    const auto lease = AcquireNow(*store_, ns, tokens, most);
    ASSERT_TRUE(lease.ok());
    EXPECT_EQ(lease->blocks().size(), std::min<std::size_t>(most, 4));
  }
}

TEST_P(PrefixStoreConformance, SharesNothingBetweenNamespacesThatDifferInAnyField) {
  Open();
  const Namespace ns = OpenNs();
  const auto tokens = TestChain(1, 3);
  ASSERT_TRUE(CommitChain(*store_, ns, tokens, Durability::kDurable).ok());
  const std::vector<std::function<void(NamespaceSpec&)>> changes = {
      [](NamespaceSpec& spec) { spec.model += "x"; },      [](NamespaceSpec& spec) { spec.layout += "x"; },
      [](NamespaceSpec& spec) { spec.positional += "x"; }, [](NamespaceSpec& spec) { spec.adapter = "lora"; },
      [](NamespaceSpec& spec) { spec.media = "image"; },   [](NamespaceSpec& spec) { spec.tenant = "tenant-b"; },
      [](NamespaceSpec& spec) { spec.salt = "b"; },        [](NamespaceSpec& spec) { spec.block_tokens = 32; },
      [](NamespaceSpec& spec) { spec.layers = 2; },        [](NamespaceSpec& spec) { spec.layer_bytes += 1; },
  };
  for (const bool restarted : {false, true}) {
    if (restarted) Open();
    for (std::size_t i = 0; i < changes.size(); ++i) {
      NamespaceSpec spec = TestSpec();
      changes[i](spec);
      const Namespace other = OpenNs(spec);
      EXPECT_NE(other.id, ns.id) << "change " << i;
      EXPECT_EQ(MatchedBlocks(*store_, other, tokens), 0u) << "change " << i;
      const auto lease = AcquireNow(*store_, other, tokens);
      ASSERT_TRUE(lease.ok());
      EXPECT_TRUE(lease->empty()) << "change " << i;
    }
    EXPECT_EQ(OpenNs().id, ns.id);
    EXPECT_EQ(MatchedBlocks(*store_, ns, tokens), 3u);
  }
}

TEST_P(PrefixStoreConformance, MovingCharactersBetweenFieldsMakesAnotherNamespace) {
  Open();
  NamespaceSpec one = TestSpec();
  one.tenant = "ab";
  one.salt = "c";
  NamespaceSpec other = TestSpec();
  other.tenant = "a";
  other.salt = "bc";
  EXPECT_NE(OpenNs(one).id, OpenNs(other).id);
}

TEST_P(PrefixStoreConformance, RefusesAParentThatIsAbsentOrOfAnotherNamespace) {
  Open();
  const Namespace ns = OpenNs();
  NamespaceSpec spec = TestSpec();
  spec.salt = "other";
  const Namespace other = OpenNs(spec);
  const auto tokens = TestChain(1, 2);
  const auto key = CommitBlock(*store_, ns, ns.id, tokens, 0, Durability::kMemory);
  ASSERT_TRUE(key.ok());
  EXPECT_TRUE(absl::IsNotFound(CommitBlock(*store_, other, *key, tokens, 1, Durability::kMemory).status()));
  EXPECT_TRUE(absl::IsNotFound(CommitBlock(*store_, other, ns.id, tokens, 0, Durability::kMemory).status()));
  const BlockKey absent{.hi = 1, .lo = 2};
  EXPECT_TRUE(absl::IsNotFound(CommitBlock(*store_, ns, absent, tokens, 1, Durability::kMemory).status()));
  EXPECT_TRUE(CommitBlock(*store_, ns, *key, tokens, 1, Durability::kMemory).ok());
}

TEST_P(PrefixStoreConformance, CommitsTheSameBlockOnce) {
  Open();
  const Namespace ns = OpenNs();
  const auto tokens = TestChain(1, 3);
  const auto first = CommitChain(*store_, ns, tokens);
  const auto second = CommitChain(*store_, ns, tokens, Durability::kDurable);
  ASSERT_TRUE(first.ok() && second.ok()) << second.status();
  EXPECT_EQ(*first, *second);
  const auto stats = store_->Stats();
  ASSERT_TRUE(stats.ok());
  EXPECT_EQ(stats->committed_blocks, 3u);
  EXPECT_EQ(stats->duplicate_commits, 3u);
  EXPECT_EQ(stats->dram.blocks, 3u);
  EXPECT_EQ(stats->nvme.blocks, 3u);
}

TEST_P(PrefixStoreConformance, WritesConcurrentDuplicatesOnce) {
  Open();
  const Namespace ns = OpenNs();
  const auto tokens = TestChain(1, 8);
  std::vector<std::thread> writers;
  std::atomic<int> failures = 0;
  for (int i = 0; i < 4; ++i) {
    writers.emplace_back([&] {
      if (!CommitChain(*store_, ns, tokens, Durability::kDurable).ok()) ++failures;
    });
  }
  for (std::thread& writer : writers) writer.join();
  EXPECT_EQ(failures, 0);
  const auto stats = store_->Stats();
  ASSERT_TRUE(stats.ok());
  EXPECT_EQ(stats->committed_blocks, 8u);
  EXPECT_EQ(stats->duplicate_commits, 24u);
  EXPECT_EQ(stats->nvme.blocks, 8u);
  const auto lease = AcquireNow(*store_, ns, tokens);
  ASSERT_TRUE(lease.ok());
  EXPECT_EQ(lease->blocks().size(), 8u);
  EXPECT_TRUE(LeaseIsExact(*lease, ns, tokens));
}

TEST_P(PrefixStoreConformance, RefusesCommitsThatDoNotFit) {
  Open();
  const Namespace ns = OpenNs();
  NamespaceSpec spec = TestSpec();
  spec.salt = "other";
  const Namespace other = OpenNs(spec);
  const auto tokens = TestTokens(1, kBlockTokens);
  const auto commit = [&](std::vector<TokenId> block, WriteGrant grant) {
    CommitRequest request{.ns = ns.id, .parent = ns.id, .tokens = std::move(block), .grant = std::move(grant)};
    return Await<BlockKey>([&](Done<BlockKey> done) { store_->Commit(std::move(request), {}, std::move(done)); })
        .status();
  };
  for (const std::size_t count : {std::size_t{0}, kBlockTokens - 1, kBlockTokens + 1}) {
    EXPECT_TRUE(absl::IsInvalidArgument(commit(TestTokens(1, count), *store_->Grant(ns.id)))) << count;
  }
  EXPECT_TRUE(absl::IsInvalidArgument(commit(tokens, *store_->Grant(other.id))));
  EXPECT_TRUE(absl::IsInvalidArgument(commit(tokens, WriteGrant())));
  std::vector<std::byte> foreign(ns.spec.payload_bytes());
  EXPECT_TRUE(absl::IsInvalidArgument(commit(tokens, WriteGrant(foreign, std::make_shared<int>(0)))));
  EXPECT_EQ(MatchedBlocks(*store_, ns, tokens), 0u);
  EXPECT_TRUE(absl::IsNotFound(store_->Grant(NamespaceId{.hi = 7, .lo = 7}).status()));
}

TEST_P(PrefixStoreConformance, AnAbandonedGrantGivesItsSlotBack) {
  Open({.dram_bytes = 1 << 20});
  const Namespace ns = OpenNs();
  for (int round = 0; round < 3; ++round) {
    std::vector<WriteGrant> grants;
    absl::Status refused;
    for (int i = 0; i < 100 && refused.ok(); ++i) {
      auto grant = store_->Grant(ns.id);
      refused = grant.status();
      if (grant.ok()) grants.push_back(*std::move(grant));
    }
    EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
    EXPECT_GE(grants.size(), 4u);
  }
}

TEST_P(PrefixStoreConformance, DropsByNamespaceTenantAndAll) {
  Open();
  NamespaceSpec spec = TestSpec();
  const Namespace a1 = OpenNs(spec);
  spec.salt = "2";
  const Namespace a2 = OpenNs(spec);
  spec.tenant = "tenant-b";
  const Namespace b = OpenNs(spec);
  const auto tokens = TestChain(1, 3);
  const auto fill = [&] {
    for (const Namespace& ns : {a1, a2, b}) ASSERT_TRUE(CommitChain(*store_, ns, tokens).ok());
  };
  const auto matched = [&] {
    return std::vector{MatchedBlocks(*store_, a1, tokens), MatchedBlocks(*store_, a2, tokens),
                       MatchedBlocks(*store_, b, tokens)};
  };
  using Counts = std::vector<std::size_t>;
  fill();
  const auto by_ns = DropNow(*store_, {.ns = a1.id, .tenant = {}, .all = false});
  ASSERT_TRUE(by_ns.ok()) << by_ns.status();
  EXPECT_EQ(by_ns->blocks, 3u);
  EXPECT_EQ(by_ns->bytes, 3 * a1.spec.payload_bytes());
  EXPECT_EQ(matched(), (Counts{0, 3, 3}));
  fill();
  const auto by_tenant = DropNow(*store_, {.ns = {}, .tenant = "tenant-a", .all = false});
  ASSERT_TRUE(by_tenant.ok());
  EXPECT_EQ(by_tenant->blocks, 6u);
  EXPECT_EQ(matched(), (Counts{0, 0, 3}));
  fill();
  ASSERT_TRUE(FlushNow(*store_).ok());
  const auto all = DropNow(*store_, {.ns = {}, .tenant = {}, .all = true});
  ASSERT_TRUE(all.ok());
  EXPECT_EQ(all->blocks, 9u);
  EXPECT_EQ(matched(), (Counts{0, 0, 0}));
  EXPECT_EQ(store_->Stats()->dram.blocks, 0u);
  EXPECT_EQ(store_->Stats()->nvme.blocks, 0u);
  EXPECT_TRUE(absl::IsInvalidArgument(DropNow(*store_, {}).status()));
  EXPECT_TRUE(absl::IsNotFound(DropNow(*store_, {.ns = NamespaceId{1, 1}, .tenant = {}, .all = false}).status()));
  Open();
  EXPECT_EQ(MatchedBlocks(*store_, b, tokens), 0u);
}

TEST_P(PrefixStoreConformance, ADroppedBlockStaysReadableToWhoLeasedIt) {
  Open();
  const Namespace ns = OpenNs();
  const auto tokens = TestChain(1, 3);
  ASSERT_TRUE(CommitChain(*store_, ns, tokens).ok());
  auto lease = AcquireNow(*store_, ns, tokens);
  ASSERT_TRUE(lease.ok());
  ASSERT_TRUE(DropNow(*store_, {.ns = ns.id, .tenant = {}, .all = false}).ok());
  EXPECT_EQ(MatchedBlocks(*store_, ns, tokens), 0u);
  // New blocks must not land in the memory that is still leased.
  for (std::uint32_t seed = 10; seed < 60; ++seed) {
    ASSERT_TRUE(CommitChain(*store_, ns, TestChain(seed, 3), Durability::kDurable).ok());
  }
  EXPECT_EQ(lease->blocks().size(), 3u);
  EXPECT_TRUE(LeaseIsExact(*lease, ns, tokens));
  *lease = Lease();
  EXPECT_EQ(store_->Stats()->leased_blocks, 0u);
}

TEST_P(PrefixStoreConformance, RestartKeepsWhatWasDurable) {
  Open();
  const Namespace ns = OpenNs();
  const auto durable = TestChain(1, 4);
  const auto flushed = TestChain(2, 4);
  ASSERT_TRUE(CommitChain(*store_, ns, durable, Durability::kDurable).ok());
  ASSERT_TRUE(CommitChain(*store_, ns, flushed, Durability::kMemory).ok());
  ASSERT_TRUE(FlushNow(*store_).ok());
  Open();
  EXPECT_EQ(OpenNs().id, ns.id);
  for (const auto& tokens : {durable, flushed}) {
    const auto match = MatchNow(*store_, ns, tokens);
    ASSERT_TRUE(match.ok());
    EXPECT_EQ(match->tiers, std::vector<Tier>(4, Tier::kNvme));
    const auto lease = AcquireNow(*store_, ns, tokens);
    ASSERT_TRUE(lease.ok());
    EXPECT_EQ(lease->blocks().size(), 4u);
    EXPECT_TRUE(LeaseIsExact(*lease, ns, tokens));
    for (const Lease::Block& block : lease->blocks()) EXPECT_EQ(block.source, Tier::kNvme);
    EXPECT_EQ(MatchNow(*store_, ns, tokens)->tiers, std::vector<Tier>(4, Tier::kDram)) << "a hit promotes";
  }
  EXPECT_EQ(store_->Stats()->hit_blocks_nvme, 8u);
}

TEST_P(PrefixStoreConformance, ContinuesAChainAfterRestart) {
  Open();
  const Namespace ns = OpenNs();
  const auto tokens = TestChain(1, 6);
  const auto keys = CommitChain(*store_, ns, First(tokens, 3), Durability::kDurable);
  ASSERT_TRUE(keys.ok());
  Open();
  BlockKey parent = keys->back();
  for (std::size_t i = 3; i < 6; ++i) {
    const auto key = CommitBlock(*store_, ns, parent, tokens, i, Durability::kDurable);
    ASSERT_TRUE(key.ok()) << key.status();
    parent = *key;
  }
  Open();
  const auto lease = AcquireNow(*store_, ns, tokens);
  ASSERT_TRUE(lease.ok());
  EXPECT_EQ(lease->blocks().size(), 6u);
  EXPECT_TRUE(LeaseIsExact(*lease, ns, tokens));
}

TEST_P(PrefixStoreConformance, AnswersCancelledAndTimedOutCallsOnce) {
  Open();
  const Namespace ns = OpenNs();
  const auto tokens = TestChain(1, 4);
  ASSERT_TRUE(CommitChain(*store_, ns, tokens, Durability::kDurable).ok());
  Open();
  std::stop_source stop;
  stop.request_stop();
  const CallOptions cancelled{.timeout = absl::InfiniteDuration(), .cancel = stop.get_token()};
  const CallOptions late{.timeout = absl::ZeroDuration(), .cancel = {}};
  const auto acquire = [&](const CallOptions& options) {
    return Await<Lease>([&](Done<Lease> done) { store_->Acquire(ns.id, tokens, 4, options, std::move(done)); });
  };
  EXPECT_TRUE(absl::IsCancelled(acquire(cancelled).status()));
  EXPECT_TRUE(absl::IsDeadlineExceeded(acquire(late).status()));
  const auto match = [&](const CallOptions& options) {
    return Await<PrefixMatch>([&](Done<PrefixMatch> done) { store_->Match(ns.id, tokens, options, std::move(done)); });
  };
  EXPECT_TRUE(absl::IsCancelled(match(cancelled).status()));
  EXPECT_TRUE(absl::IsDeadlineExceeded(match(late).status()));
  // Cancelled at any moment: either the lease or Cancelled, and nothing stays leased.
  for (int i = 0; i < 50; ++i) {
    std::stop_source source;
    std::atomic<int> completions = 0;
    absl::Notification over;
    store_->Acquire(ns.id, tokens, 4, {.timeout = absl::Seconds(60), .cancel = source.get_token()},
                    [&](const absl::StatusOr<Lease>& lease) {
                      EXPECT_TRUE(lease.ok() || absl::IsCancelled(lease.status())) << lease.status();
                      ++completions;
                      over.Notify();
                    });
    source.request_stop();
    over.WaitForNotification();
    EXPECT_EQ(completions, 1);
  }
  const auto lease = acquire({});
  ASSERT_TRUE(lease.ok());
  EXPECT_EQ(lease->blocks().size(), 4u);
  EXPECT_TRUE(LeaseIsExact(*lease, ns, tokens));
}

TEST_P(PrefixStoreConformance, AnswersEmptyAndUnknownRequestsCleanly) {
  Open();
  const Namespace ns = OpenNs();
  const auto tokens = TestChain(1, 2);
  ASSERT_TRUE(CommitChain(*store_, ns, tokens).ok());
  EXPECT_EQ(MatchedBlocks(*store_, ns, {}), 0u);
  EXPECT_TRUE(AcquireNow(*store_, ns, {})->empty());
  const Namespace unknown{.id = {.hi = 1, .lo = 2}, .spec = TestSpec()};
  EXPECT_TRUE(absl::IsNotFound(MatchNow(*store_, unknown, tokens).status()));
  EXPECT_TRUE(absl::IsNotFound(AcquireNow(*store_, unknown, tokens).status()));
  NamespaceSpec bad = TestSpec();
  bad.block_tokens = 17;
  EXPECT_TRUE(absl::IsInvalidArgument(store_->OpenNamespace(bad, {}).status()));
  bad = TestSpec();
  bad.layer_bytes = 512 << 20;  // more than the DRAM tier holds, or out of bounds: refused, not tried
  EXPECT_TRUE(absl::IsInvalidArgument(store_->OpenNamespace(bad, {}).status()));
  EXPECT_EQ(MatchedBlocks(*store_, ns, tokens), 2u);
}

TEST_P(PrefixStoreConformance, ListsNamespacesWithTheirBlocksCountedOnce) {
  Open();
  const Namespace ns = OpenNs();
  NamespaceSpec spec = TestSpec();
  spec.salt = "empty";
  OpenNs(spec);
  ASSERT_TRUE(CommitChain(*store_, ns, TestChain(1, 3), Durability::kDurable).ok());
  ASSERT_TRUE(CommitChain(*store_, ns, TestChain(2, 2), Durability::kMemory).ok());
  const auto infos = store_->ListNamespaces();
  ASSERT_TRUE(infos.ok());
  ASSERT_EQ(infos->size(), 2u);
  for (const NamespaceInfo& info : *infos) {
    EXPECT_EQ(info.blocks, info.ns.id == ns.id ? 5u : 0u);
    EXPECT_EQ(info.bytes, info.blocks * ns.spec.payload_bytes());
  }
  EXPECT_EQ(store_->Stats()->namespaces, 2u);
}

TEST_P(PrefixStoreConformance, NeverHoldsMoreThanItsCapacity) {
  const StoreSetup setup{.dram_bytes = 2 << 20, .nvme_bytes = 16 << 20, .segment_bytes = 2 << 20};
  Open(setup);
  const Namespace ns = OpenNs();
  for (std::uint32_t seed = 0; seed < 300; ++seed) {
    const auto tokens = TestChain(seed, 2);
    const auto keys = CommitChain(*store_, ns, tokens, seed % 8 == 0 ? Durability::kDurable : Durability::kMemory);
    // Overload is answered, not queued: then wait and go on.
    if (!keys.ok()) {
      ASSERT_TRUE(absl::IsResourceExhausted(keys.status())) << keys.status();
      ASSERT_TRUE(FlushNow(*store_).ok());
    }
    const auto stats = store_->Stats();
    ASSERT_TRUE(stats.ok());
    ASSERT_LE(stats->dram.bytes, stats->dram.capacity_bytes);
    ASSERT_LE(stats->dram.capacity_bytes, setup.dram_bytes);
    ASSERT_LE(stats->nvme.bytes, setup.nvme_bytes);
  }
  ASSERT_TRUE(FlushNow(*store_).ok());
  const auto stats = store_->Stats();
  EXPECT_GT(stats->evicted_blocks_dram, 0u);
  EXPECT_GT(stats->evicted_blocks_nvme, 0u);
  EXPECT_GT(stats->nvme.blocks, 0u);
}

TEST_P(PrefixStoreConformance, LeasesTheLongestChainThatDramHolds) {
  Open({.dram_bytes = 1 << 20});  // at most 15 of these blocks
  const Namespace ns = OpenNs();
  const auto tokens = TestChain(1, 30);
  ASSERT_TRUE(CommitChain(*store_, ns, tokens, Durability::kDurable).ok());
  EXPECT_EQ(MatchedBlocks(*store_, ns, tokens), 30u);
  auto lease = AcquireNow(*store_, ns, tokens);
  // A block being copied to a shared folder stays in DRAM until that ends, which it does by itself.
  for (int look = 0; look < 500 && lease.ok() && lease->blocks().size() < 12; ++look) {
    *lease = Lease();
    absl::SleepFor(absl::Milliseconds(10));
    lease = AcquireNow(*store_, ns, tokens);
  }
  ASSERT_TRUE(lease.ok()) << lease.status();
  EXPECT_GE(lease->blocks().size(), 12u);  // its own tail, in DRAM from the commits, made way for its head
  EXPECT_LT(lease->blocks().size(), 16u);
  EXPECT_TRUE(LeaseIsExact(*lease, ns, tokens));
}

TEST_P(PrefixStoreConformance, StaysExactUnderConcurrentUseWithTiersInMotion) {
  Open({.dram_bytes = 2 << 20, .nvme_bytes = 32 << 20, .segment_bytes = 2 << 20});
  const Namespace ns = OpenNs();
  std::atomic<std::uint64_t> hits = 0;
  std::vector<std::thread> clients;
  for (std::uint32_t client = 0; client < 4; ++client) {
    clients.emplace_back([&, client] {
      std::uint32_t seed = client;
      for (int i = 0; i < 60; ++i) {
        seed = seed * 1664525 + 1013904223;
        const auto tokens = TestChain((seed >> 16) % 12, 6);
        const auto lease = AcquireNow(*store_, ns, tokens);
        ASSERT_TRUE(lease.ok()) << lease.status();
        ASSERT_TRUE(LeaseIsExact(*lease, ns, tokens));
        hits += lease->blocks().size();
        const auto keys = CommitChain(*store_, ns, tokens, i % 3 == 0 ? Durability::kDurable : Durability::kMemory);
        if (!keys.ok()) {
          ASSERT_TRUE(absl::IsResourceExhausted(keys.status()) || absl::IsNotFound(keys.status())) << keys.status();
        }
        if (client == 0 && i % 20 == 19) {
          ASSERT_TRUE(DropNow(*store_, {.ns = ns.id, .tenant = {}, .all = false}).ok());
        }
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_GT(hits, 0u);
  EXPECT_EQ(store_->Stats()->leased_blocks, 0u);
  EXPECT_EQ(store_->Stats()->corrupt_blocks, 0u);
}

}  // namespace
}  // namespace kvist
