// Token chains with payloads that follow from their namespace and tokens, so that any wrong byte shows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cachestore/await.h"
#include "cachestore/prefix_store.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace kvist {

// A small namespace: 16-token blocks, 64 KiB payloads in 4 layers.
NamespaceSpec TestSpec();

// `count` token ids that follow from `seed`; different seeds differ in the first block already.
std::vector<TokenId> TestTokens(std::uint32_t seed, std::size_t count);
// Enough for `blocks` full blocks of TestSpec().
std::vector<TokenId> TestChain(std::uint32_t seed, std::size_t blocks);

// What the block that ends with the last of `prefix` holds in namespace `ns`.
std::vector<std::byte> TestPayload(const Namespace& ns, std::span<const TokenId> prefix);

// Commits block `index` of `tokens` under `parent`.
absl::StatusOr<BlockKey> CommitBlock(PrefixStore& store, const Namespace& ns, const BlockKey& parent,
                                     std::span<const TokenId> tokens, std::size_t index, Durability durability);
// Commits all full blocks of `tokens`; their keys.
absl::StatusOr<std::vector<BlockKey>> CommitChain(PrefixStore& store, const Namespace& ns,
                                                  std::span<const TokenId> tokens,
                                                  Durability durability = Durability::kMemory);

absl::StatusOr<PrefixMatch> MatchNow(PrefixStore& store, const Namespace& ns, std::span<const TokenId> tokens);
std::size_t MatchedBlocks(PrefixStore& store, const Namespace& ns, std::span<const TokenId> tokens);
absl::StatusOr<Lease> AcquireNow(PrefixStore& store, const Namespace& ns, std::span<const TokenId> tokens,
                                 std::size_t max_blocks = SIZE_MAX);
absl::Status FlushNow(PrefixStore& store);
absl::StatusOr<DropResult> DropNow(PrefixStore& store, const DropRequest& request);

// Whether every leased block holds exactly what TestPayload says.
testing::AssertionResult LeaseIsExact(const Lease& lease, const Namespace& ns, std::span<const TokenId> tokens);

// In memory, for tests of many small stores: syncs cost nothing there.
inline constexpr const char* kMemoryRoot = "/dev/shm/";

// A directory that goes with its owner.
class TestDirectory {
 public:
  explicit TestDirectory(const std::string& root = testing::TempDir());
  ~TestDirectory();
  TestDirectory(const TestDirectory&) = delete;
  TestDirectory& operator=(const TestDirectory&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace kvist
