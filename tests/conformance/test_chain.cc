#include "tests/conformance/test_chain.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "fmt/format.h"

namespace kvist {
namespace {

std::uint64_t Mix(std::uint64_t state) {  // splitmix64
  state += 0x9e3779b97f4a7c15;
  state = (state ^ (state >> 30)) * 0xbf58476d1ce4e5b9;
  state = (state ^ (state >> 27)) * 0x94d049bb133111eb;
  return state ^ (state >> 31);
}

}  // namespace

NamespaceSpec TestSpec() {
  NamespaceSpec spec;
  spec.model = "sha256:test-weights";
  spec.layout = "full;layers=4;heads=2;dim=64;f16";
  spec.positional = "rope;base=10000";
  spec.tenant = "tenant-a";
  spec.block_tokens = 16;
  spec.layers = 4;
  spec.layer_bytes = 16 << 10;
  return spec;
}

std::vector<TokenId> TestTokens(std::uint32_t seed, std::size_t count) {
  std::vector<TokenId> tokens(count);
  std::uint64_t state = Mix(seed);
  for (TokenId& token : tokens) token = static_cast<TokenId>((state = Mix(state)) % 50'000);
  return tokens;
}

std::vector<TokenId> TestChain(std::uint32_t seed, std::size_t blocks) {
  return TestTokens(seed, blocks * TestSpec().block_tokens);
}

std::vector<std::byte> TestPayload(const Namespace& ns, std::span<const TokenId> prefix) {
  std::uint64_t state = Mix(ns.id.hi) ^ ns.id.lo;
  for (const TokenId token : prefix) state = Mix(state ^ token);
  std::vector<std::byte> payload(ns.spec.payload_bytes());
  for (std::size_t i = 0; i < payload.size(); i += sizeof(state)) {
    state = state * 6364136223846793005 + 1442695040888963407;
    std::memcpy(payload.data() + i, &state, std::min(sizeof(state), payload.size() - i));
  }
  return payload;
}

absl::StatusOr<BlockKey> CommitBlock(PrefixStore& store, const Namespace& ns, const BlockKey& parent,
                                     std::span<const TokenId> tokens, std::size_t index, Durability durability) {
  absl::StatusOr<WriteGrant> grant = store.Grant(ns.id);
  if (!grant.ok()) return grant.status();
  const std::size_t count = ns.spec.block_tokens;
  const std::vector<std::byte> payload = TestPayload(ns, tokens.first((index + 1) * count));
  if (grant->payload().size() != payload.size()) return absl::InternalError("grant of a wrong size");
  std::memcpy(grant->payload().data(), payload.data(), payload.size());
  const auto block = tokens.subspan(index * count, count);
  CommitRequest request{.ns = ns.id,
                        .parent = parent,
                        .tokens = {block.begin(), block.end()},
                        .grant = *std::move(grant),
                        .durability = durability};
  return Await<BlockKey>([&](Done<BlockKey> done) { store.Commit(std::move(request), {}, std::move(done)); });
}

absl::StatusOr<std::vector<BlockKey>> CommitChain(PrefixStore& store, const Namespace& ns,
                                                  std::span<const TokenId> tokens, Durability durability) {
  std::vector<BlockKey> keys;
  BlockKey parent = ns.id;
  for (std::size_t i = 0; i < tokens.size() / ns.spec.block_tokens; ++i) {
    const absl::StatusOr<BlockKey> key = CommitBlock(store, ns, parent, tokens, i, durability);
    if (!key.ok()) return key.status();
    keys.push_back(parent = *key);
  }
  return keys;
}

absl::StatusOr<PrefixMatch> MatchNow(PrefixStore& store, const Namespace& ns, std::span<const TokenId> tokens) {
  return Await<PrefixMatch>([&](Done<PrefixMatch> done) { store.Match(ns.id, tokens, {}, std::move(done)); });
}

std::size_t MatchedBlocks(PrefixStore& store, const Namespace& ns, std::span<const TokenId> tokens) {
  const absl::StatusOr<PrefixMatch> match = MatchNow(store, ns, tokens);
  EXPECT_TRUE(match.ok()) << match.status();
  return match.ok() ? match->blocks() : 0;
}

absl::StatusOr<Lease> AcquireNow(PrefixStore& store, const Namespace& ns, std::span<const TokenId> tokens,
                                 std::size_t max_blocks) {
  return Await<Lease>([&](Done<Lease> done) { store.Acquire(ns.id, tokens, max_blocks, {}, std::move(done)); });
}

absl::Status FlushNow(PrefixStore& store) {
  return AwaitStatus([&](DoneStatus done) { store.Flush({}, std::move(done)); });
}

absl::StatusOr<DropResult> DropNow(PrefixStore& store, const DropRequest& request) {
  return Await<DropResult>([&](Done<DropResult> done) { store.Drop(request, {}, std::move(done)); });
}

testing::AssertionResult LeaseIsExact(const Lease& lease, const Namespace& ns, std::span<const TokenId> tokens) {
  const std::size_t count = ns.spec.block_tokens;
  for (std::size_t i = 0; i < lease.blocks().size(); ++i) {
    const std::vector<std::byte> expected = TestPayload(ns, tokens.first((i + 1) * count));
    if (!std::ranges::equal(lease.blocks()[i].payload, expected)) {
      return testing::AssertionFailure() << "block " << i << " holds other bytes than were put";
    }
  }
  return testing::AssertionSuccess();
}

TestDirectory::TestDirectory(const std::string& root) {
  std::string pattern = root + "kvist-XXXXXX";
  if (mkdtemp(pattern.data()) == nullptr) std::abort();
  path_ = pattern;
}

TestDirectory::~TestDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace kvist
