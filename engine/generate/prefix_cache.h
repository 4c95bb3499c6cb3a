// PrefixCache: the engine's side of a PrefixStore. It knows the model's namespace, leases the stored part of a prompt
// and gives back computed blocks. Whatever the store answers, the caller can go on: an error is a miss with a reason.
// Not thread-safe.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "cachestore/prefix_store.h"
#include "cachestore/tier/device_tier.h"
#include "engine/paged_kv/kv_pages.h"

namespace kvist::engine {

class PrefixCache {
 public:
  // `store` may be null: every prompt misses and nothing is stored.
  PrefixCache(PrefixStore* store, NamespaceSpec spec) : store_(store), spec_(std::move(spec)) {}

  // Begins a sequence and yields its stored prefix, short of the last token (whose logits are needed). Empty on a
  // miss or any error, and if `read` is false.
  Lease AcquirePrefix(std::span<const TokenId> prompt, bool read);

  // Gives blocks [first_block, tokens.size() / block_tokens) to the store, in order, until one is refused.
  // `tokens` are the sequence from its start, `kv` holds their KV. Yields how many were stored.
  std::size_t StoreBlocks(std::span<const TokenId> tokens, std::size_t first_block, const KvPages& kv,
                          DeviceTier& device);

  // The last error the store gave, OK if none since the start of the last AcquirePrefix.
  const absl::Status& last_error() const { return last_error_; }

 private:
  // The namespace is opened at first use and again after a failure, so that a store that comes back is used.
  absl::Status EnsureNamespace();

  PrefixStore* store_;
  NamespaceSpec spec_;
  bool opened_ = false;
  NamespaceId ns_;
  BlockKey parent_;               // of the next block to store: the chain's end so far
  std::size_t chain_blocks_ = 0;  // how many blocks of the current sequence that chain has
  absl::Status last_error_;
};

}  // namespace kvist::engine
