#include "bench/daemon/prompt.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "cachestore/await.h"

namespace kvist::bench {
namespace {

template <typename T>
T OrFail(absl::StatusOr<T> value) {
  if (!value.ok()) Fail(std::string(value.status().message()));
  return *std::move(value);
}

std::vector<TokenId> RoundTokens(const Namespace& ns, int round) {
  std::vector<TokenId> tokens(kPromptBlocks * ns.spec.block_tokens);
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<TokenId>((round + 100) * 65'537 + i);
  return tokens;
}

}  // namespace

void Fail(const std::string& what) {
  std::fprintf(stderr, "daemon_bench: %s\n", what.c_str());
  std::exit(2);
}

double Seconds(const std::function<void()>& work) {
  const absl::Time begin = absl::Now();
  work();
  return absl::ToDoubleSeconds(absl::Now() - begin);
}

void PutPrompt(RemoteStore* store, const Namespace& ns, int round, std::span<const std::byte> source) {
  const std::size_t bytes = ns.spec.payload_bytes();
  const auto tokens = RoundTokens(ns, round);
  BlockKey parent = ns.id;
  for (std::size_t i = 0; i < kPromptBlocks; ++i) {
    WriteGrant grant = OrFail(store->Grant(ns.id));
    std::memcpy(grant.payload().data(), source.data() + i * bytes, bytes);
    const auto first = tokens.begin() + static_cast<std::ptrdiff_t>(i * ns.spec.block_tokens);
    CommitRequest request{
        .ns = ns.id, .parent = parent, .tokens = {first, first + ns.spec.block_tokens}, .grant = std::move(grant)};
    parent =
        OrFail(Await<BlockKey>([&](Done<BlockKey> done) { store->Commit(std::move(request), {}, std::move(done)); }));
  }
}

void GetPrompt(RemoteStore* store, const Namespace& ns, int round, std::span<std::byte> target) {
  const std::size_t bytes = ns.spec.payload_bytes();
  const auto tokens = RoundTokens(ns, round);
  const Lease lease = OrFail(
      Await<Lease>([&](Done<Lease> done) { store->Acquire(ns.id, tokens, kPromptBlocks, {}, std::move(done)); }));
  if (lease.blocks().size() != kPromptBlocks) Fail("not all blocks are resident");
  for (std::size_t i = 0; i < kPromptBlocks; ++i) {
    std::memcpy(target.data() + i * bytes, lease.blocks()[i].payload.data(), bytes);
  }
}

}  // namespace kvist::bench
