#include "engine/generate/prefix_cache.h"

#include <algorithm>
#include <utility>

#include "cachestore/await.h"

namespace kvist::engine {
namespace {

// A store slower than this is worth less than recomputing: treat it as a miss and go on.
constexpr absl::Duration kStoreTimeout = absl::Seconds(10);

CallOptions Bounded() {
  CallOptions options;
  options.timeout = kStoreTimeout;
  return options;
}

}  // namespace

absl::Status PrefixCache::EnsureNamespace() {
  if (opened_) return absl::OkStatus();
  absl::StatusOr<Namespace> ns = store_->OpenNamespace(spec_, NamespaceOptions{});
  if (!ns.ok()) return ns.status();
  ns_ = ns->id;
  opened_ = true;
  return absl::OkStatus();
}

Lease PrefixCache::AcquirePrefix(std::span<const TokenId> prompt, bool read) {
  last_error_ = absl::OkStatus();
  chain_blocks_ = 0;
  if (store_ == nullptr || prompt.empty()) return Lease();
  if (last_error_ = EnsureNamespace(); !last_error_.ok()) return Lease();
  parent_ = ns_;

  const std::size_t max_blocks = (prompt.size() - 1) / spec_.block_tokens;
  if (max_blocks == 0 || !read) return Lease();
  absl::StatusOr<Lease> lease =
      Await<Lease>([&](Done<Lease> done) { store_->Acquire(ns_, prompt, max_blocks, Bounded(), std::move(done)); });
  if (!lease.ok()) {
    if (!absl::IsNotFound(lease.status())) last_error_ = lease.status();
    // A daemon that lost its store (or a store that lost the namespace) must be asked anew next time.
    opened_ = false;
    return Lease();
  }
  chain_blocks_ = lease->blocks().size();
  if (chain_blocks_ > 0) parent_ = lease->blocks().back().key;
  return *std::move(lease);
}

std::size_t PrefixCache::StoreBlocks(std::span<const TokenId> tokens, std::size_t first_block, const KvPages& kv,
                                     DeviceTier& device) {
  // A chain with a hole can't be extended: blocks before `first_block` must all be the store's.
  if (store_ == nullptr || !opened_ || first_block != chain_blocks_) return 0;
  const std::size_t block_tokens = spec_.block_tokens;
  const std::size_t end = std::min(tokens.size(), kv.capacity_tokens()) / block_tokens;
  std::size_t stored = 0;
  for (std::size_t block = first_block; block < end; ++block) {
    absl::StatusOr<WriteGrant> grant = store_->Grant(ns_);
    if (!grant.ok()) {
      last_error_ = grant.status();
      break;
    }
    if (last_error_ = device.Store(kv.pages[block], grant->payload()); !last_error_.ok()) break;
    if (last_error_ = device.Wait(); !last_error_.ok()) break;
    CommitRequest request;
    request.ns = ns_;
    request.parent = parent_;
    const std::span<const TokenId> ids = tokens.subspan(block * block_tokens, block_tokens);
    request.tokens.assign(ids.begin(), ids.end());
    request.grant = *std::move(grant);
    absl::StatusOr<BlockKey> key =
        Await<BlockKey>([&](Done<BlockKey> done) { store_->Commit(std::move(request), Bounded(), std::move(done)); });
    if (!key.ok()) {
      last_error_ = key.status();
      break;
    }
    parent_ = *key;
    ++chain_blocks_;
    ++stored;
  }
  return stored;
}

}  // namespace kvist::engine
