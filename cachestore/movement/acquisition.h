// Acquisition: one Acquire whose chain is partly below DRAM. Asks the shared tier how far it continues what is here,
// fetches the missing blocks meanwhile, several at a time and in chain order, and ends with a lease on the longest
// readable prefix.
// Thread safety: any thread; keeps itself alive while fetches are under way.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "cachestore/movement/pending_call.h"
#include "cachestore/movement/promotion.h"
#include "cachestore/movement/shared_reader.h"
#include "cachestore/movement/shared_write_back.h"
#include "cachestore/movement/write_back.h"
#include "cachestore/prefix_store.h"
#include "cachestore/tier/dram_tier.h"
#include "cachestore/tier/nvme_tier.h"

namespace kvist {

struct HitCounters {
  std::atomic<std::uint64_t> dram = 0;
  std::atomic<std::uint64_t> nvme = 0;
  std::atomic<std::uint64_t> shared = 0;
  std::atomic<std::uint64_t> miss = 0;
};

class Acquisition : public std::enable_shared_from_this<Acquisition> {
 public:
  // Enough to keep a drive busy with 1 MiB blocks; two acquisitions fill the tier's default queue.
  static constexpr std::size_t kFetchesInFlightMax = 16;
  using Call = PendingCall<absl::StatusOr<Lease>>;

  struct Parts {
    std::shared_ptr<DramTier> dram;
    NvmeTier* nvme = nullptr;
    Promotion* promotion = nullptr;
    WriteBack* write_back = nullptr;
    SharedReader* shared = nullptr;  // this and the next: null without a shared tier
    SharedWriteBack* shared_write_back = nullptr;
    HitCounters* hits = nullptr;
  };
  struct Request {
    NamespaceId ns;
    RecordShape shape;
    std::vector<BlockKey> keys;
    absl::Time now;
    absl::Time expires;  // of what is leased
  };

  // Leases what is in DRAM; if that isn't all there is, `call` completes later. `tokens`: of all keys.
  // `alive` is held until the end.
  static void Start(const Parts& parts, Request request, std::span<const TokenId> tokens, std::shared_ptr<Call> call,
                    std::shared_ptr<void> alive);

  Acquisition(const Parts& parts, Request request, std::shared_ptr<Call> call, std::shared_ptr<void> alive)
      : parts_(parts), request_(std::move(request)), call_(std::move(call)), alive_(std::move(alive)) {}
  ~Acquisition() { parts_.dram->Release(blocks_); }
  Acquisition(const Acquisition&) = delete;
  Acquisition& operator=(const Acquisition&) = delete;

 private:
  enum class Below : std::uint8_t { kHere, kAbsent, kUseless };
  Below OnNvme(std::size_t index) const;
  std::size_t Reachable() const;  // the chain's length as far as both tiers of this store know
  // Asks the shared tier how far it continues the chain, if that can be.
  void Probe() ABSL_LOCKS_EXCLUDED(mutex_);
  void OnProbed(std::size_t limit) ABSL_LOCKS_EXCLUDED(mutex_);
  void Pump() ABSL_LOCKS_EXCLUDED(mutex_);
  void OnFetched(std::size_t index, absl::StatusOr<Promotion::Fetched> fetched) ABSL_LOCKS_EXCLUDED(mutex_);
  // Whether the block continues this chain: its parent and every token id.
  bool Fits(std::size_t index, const DramBlock& block) const;
  // Gives up the end of the chain that is in DRAM already, to make room for what comes before it.
  bool YieldTail(std::size_t after) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Finish() ABSL_LOCKS_EXCLUDED(mutex_);
  void CountHits(std::size_t count);

  const Parts parts_;
  const Request request_;
  const std::shared_ptr<Call> call_;
  const std::shared_ptr<void> alive_;
  std::size_t reachable_ = 0;         // at the start
  absl::Duration shared_due_;         // monotonic: the end of the chain's time for the shared tier
  std::vector<TokenId> tokens_;       // a copy, made if fetching outlives the caller's
  std::vector<Tier> sources_;         // one per key
  std::vector<DramBlockRef> blocks_;  // one per key, leased; null while not in DRAM. An element has one writer.

  absl::Mutex mutex_;
  std::size_t limit_ ABSL_GUARDED_BY(mutex_) = 0;           // blocks that can still be had
  std::size_t next_ ABSL_GUARDED_BY(mutex_) = 0;            // first not looked at
  std::vector<std::size_t> again_ ABSL_GUARDED_BY(mutex_);  // found no room, but there is some now
  std::size_t in_flight_ ABSL_GUARDED_BY(mutex_) = 0;
  bool pumping_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace kvist
