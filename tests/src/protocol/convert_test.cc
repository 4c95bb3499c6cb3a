#include "src/protocol/convert.h"

#include "gmock/gmock.h"

namespace kvist::protocol {
namespace {

TEST(Convert, KeepsEveryFieldOfANamespace) {
  const NamespaceSpec spec{.model = "m\0odel",
                           .layout = "layout",
                           .positional = "rope",
                           .adapter = "lora",
                           .media = std::string("\xff\x00\x01", 3),  // digests are bytes, not UTF-8
                           .tenant = "tenant",
                           .salt = "salt",
                           .block_tokens = 128,
                           .layers = 30,
                           .layer_bytes = 49152};
  v1::NamespaceSpec wire;
  ToWire(spec, &wire);
  v1::NamespaceSpec read;
  ASSERT_TRUE(read.ParseFromString(wire.SerializeAsString()));
  EXPECT_EQ(FromWire(read), spec);
}

TEST(Convert, KeepsEveryCounter) {
  StoreStats stats;
  stats.dram = {1, 2, 3};
  stats.nvme = {4, 5, 6};
  std::uint64_t next = 7;
  for (std::uint64_t* counter :
       {&stats.namespaces, &stats.leased_blocks, &stats.hit_blocks_dram, &stats.hit_blocks_nvme, &stats.miss_blocks,
        &stats.committed_blocks, &stats.duplicate_commits, &stats.evicted_blocks_dram, &stats.evicted_blocks_nvme,
        &stats.expired_blocks, &stats.corrupt_blocks, &stats.write_back_pending, &stats.device_errors}) {
    *counter = next++;
  }
  stats.shared.configured = stats.shared.available = true;
  for (std::uint64_t* counter :
       {&stats.shared.hit_blocks, &stats.shared.read_bytes, &stats.shared.written_blocks, &stats.shared.written_bytes,
        &stats.shared.timeouts, &stats.shared.errors, &stats.shared.corrupt_blocks, &stats.shared.write_back_pending,
        &stats.shared.write_back_dropped}) {
    *counter = next++;
  }
  v1::StatsReply wire;
  ToWire(stats, &wire);
  const StoreStats again = FromWire(wire);
  v1::StatsReply twice;
  ToWire(again, &twice);
  EXPECT_EQ(wire.SerializeAsString(), twice.SerializeAsString());
  EXPECT_EQ(again.shared.write_back_dropped, next - 1);
  EXPECT_TRUE(again.shared.configured && again.shared.available);
  stats.shared = {};
  v1::StatsReply without;
  ToWire(stats, &without);
  EXPECT_FALSE(FromWire(without).shared.configured);
  EXPECT_EQ(again.nvme.capacity_bytes, 6u);
}

TEST(Convert, KeepsANamespaceThatWasNeverUsed) {
  NamespaceInfo info;
  v1::ListNamespacesReply::Item wire;
  ToWire(info, &wire);
  EXPECT_EQ(FromWire(wire).last_used, absl::InfinitePast());
  info.last_used = absl::FromUnixMillis(1'800'000'000'123);
  ToWire(info, &wire);
  EXPECT_EQ(FromWire(wire).last_used, info.last_used);
}

TEST(Convert, RefusesTokensThatAreNotWhole) {
  const std::vector<TokenId> tokens = {0, 1, 0xffffffff};
  const std::string wire = TokensToWire(tokens);
  EXPECT_EQ(wire.size(), 12u);
  EXPECT_EQ(*TokensFromWire(wire), tokens);
  EXPECT_TRUE(TokensFromWire("")->empty());
  EXPECT_FALSE(TokensFromWire("12345").ok());
}

TEST(Convert, RefusesUnknownTiers) {
  for (const Tier tier : {Tier::kDram, Tier::kNvme, Tier::kShared}) {
    EXPECT_EQ(*TierFromWire(ToWire(tier, v1::TIER_SHARED)), tier);
  }
  EXPECT_EQ(ToWire(Tier::kShared, v1::TIER_NVME), v1::TIER_NVME) << "to a client that doesn't know it";
  EXPECT_FALSE(TierFromWire(0).ok());
  EXPECT_FALSE(TierFromWire(9).ok());
}

}  // namespace
}  // namespace kvist::protocol
