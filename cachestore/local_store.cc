#include "cachestore/local_store.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/notification.h"
#include "cachestore/await.h"
#include "cachestore/movement/acquisition.h"
#include "cachestore/movement/active_calls.h"
#include "cachestore/movement/pending_call.h"
#include "cachestore/movement/pinning.h"
#include "cachestore/movement/promotion.h"
#include "cachestore/movement/removal.h"
#include "cachestore/movement/shared_reader.h"
#include "cachestore/movement/shared_write_back.h"
#include "cachestore/movement/worker.h"
#include "cachestore/movement/write_back.h"
#include "cachestore/namespace_table.h"
#include "cachestore/retention/guarded_clock.h"
#include "cachestore/tier/dram_tier.h"
#include "cachestore/tier/grant_table.h"
#include "fmt/format.h"
#include "spdlog/spdlog.h"

namespace kvist {
namespace {

// How late an expired block's space may be reclaimed; it stops matching at its expiry.
constexpr absl::Duration kSweepInterval = absl::Minutes(1);
// Keys computed and looked up at a time: enough to hide the table's cache misses, few enough that a prompt that
// matches nothing is not hashed to its end.
constexpr std::size_t kMatchBatch = 64;

class LocalStoreImpl final : public LocalStore {
 public:
  LocalStoreImpl(const LocalStoreOptions& options, std::unique_ptr<GuardedClock> clock,
                 std::unique_ptr<DramArena> arena, std::unique_ptr<NvmeTier> nvme, std::unique_ptr<ObjectTier> shared);
  ~LocalStoreImpl() override;

  absl::StatusOr<Namespace> OpenNamespace(const NamespaceSpec& spec, const NamespaceOptions& options) override;
  void Match(const NamespaceId& ns, std::span<const TokenId> tokens, const CallOptions& options,
             Done<PrefixMatch> done) override;
  void Acquire(const NamespaceId& ns, std::span<const TokenId> tokens, std::size_t max_blocks,
               const CallOptions& options, Done<Lease> done) override;
  absl::StatusOr<WriteGrant> Grant(const NamespaceId& ns) override;
  void Commit(CommitRequest request, const CallOptions& options, Done<BlockKey> done) override;
  void Touch(const NamespaceId& ns, std::span<const TokenId> tokens, const CallOptions& options,
             Done<std::size_t> done) override;
  void Pin(const NamespaceId& ns, std::span<const TokenId> tokens, const CallOptions& options,
           Done<std::size_t> done) override;
  void Unpin(const NamespaceId& ns, std::span<const TokenId> tokens, const CallOptions& options,
             Done<std::size_t> done) override;
  void Drop(const DropRequest& request, const CallOptions& options, Done<DropResult> done) override;
  void Flush(const CallOptions& options, DoneStatus done) override;
  absl::StatusOr<StoreStats> Stats() override;
  absl::StatusOr<std::vector<NamespaceInfo>> ListNamespaces() override;

  int arena_fd() const override { return arena_->fd(); }
  std::uint64_t arena_bytes() const override { return arena_->memory().size(); }
  std::uint64_t ArenaOffset(std::span<const std::byte> payload) const override {
    return static_cast<std::uint64_t>(payload.data() - arena_->memory().data());
  }
  void FlushShared(const CallOptions& options, DoneStatus done) override;
  absl::Status Sweep() override;

 private:
  struct Chain {
    std::vector<BlockKey> keys;
    std::vector<Tier> tiers;
    bool continues = false;  // where it ends is nothing known here: the shared tier may have more
  };
  struct Committed {
    DramBlockRef block;
    bool on_nvme = false;  // already, as far as known
  };

  absl::Time Now() const { return clock_->Wall(); }
  // The resident, unexpired prefix of `tokens`.
  Chain Resident(const KnownNamespace& known, std::span<const TokenId> tokens, absl::Time now) const;
  // Completes with `chain`, and what the shared tier has of `tokens` beyond it.
  void MatchShared(const KnownNamespace& known, std::span<const TokenId> tokens, Chain chain,
                   const CallOptions& options, Done<PrefixMatch> done);
  // A durable block, or a chain that was used, is worth having in the shared tier.
  void OfferShared(const NamespaceId& ns, std::span<const BlockKey> keys, absl::Time expires) {
    if (shared_write_back_ != nullptr) shared_write_back_->Offer(ns, keys, expires);
  }
  void SweepShared();
  // Waits no longer than it may for what is on its way to the shared tier.
  void DrainShared();
  bool IsResident(const NamespaceId& ns, const BlockKey& key, absl::Time now) const;
  absl::StatusOr<Committed> Publish(const CommitRequest& request);
  absl::StatusOr<std::vector<NamespaceId>> Affected(const DropRequest& request) const;
  void ScheduleSweep();

  // What a call that ends elsewhere holds: its completion, and the store.
  template <typename Result>
  auto Finisher(const CallOptions& options, typename PendingCall<Result>::Completion done) {
    return [call = PendingCall<Result>::Begin(worker_.get(), options, std::move(done)),
            alive = calls_.Enter()](Result result) { call->Complete(std::move(result)); };
  }

  const LocalStoreOptions options_;
  const std::unique_ptr<GuardedClock> clock_;
  const std::shared_ptr<DramArena> arena_;
  const std::shared_ptr<DramTier> dram_;
  const std::shared_ptr<GrantTable> grants_;
  std::unique_ptr<NvmeTier> nvme_;
  std::unique_ptr<ObjectTier> shared_;  // these three: null without a shared tier
  const std::unique_ptr<SharedReader> shared_reader_;
  const std::unique_ptr<SharedWriteBack> shared_write_back_;
  std::atomic<bool> sweeping_shared_ = false;
  const KeyHasher hasher_;
  NamespaceTable namespaces_;
  std::unique_ptr<Worker> worker_;
  WriteBack write_back_;
  Promotion promotion_;
  Removal removal_;
  Pinning pinning_;
  ActiveCalls calls_;
  HitCounters hits_;
  std::atomic<std::uint64_t> committed_ = 0;
  std::atomic<std::uint64_t> duplicates_ = 0;
  std::atomic<std::uint64_t> expired_in_dram_ = 0;  // those that were nowhere else
};

const Clock* SystemClockIfNull(const Clock* clock) {
  static const SystemClock system_clock;  // stateless
  return clock != nullptr ? clock : &system_clock;
}

LocalStoreImpl::LocalStoreImpl(const LocalStoreOptions& options, std::unique_ptr<GuardedClock> clock,
                               std::unique_ptr<DramArena> arena, std::unique_ptr<NvmeTier> nvme,
                               std::unique_ptr<ObjectTier> shared)
    : options_(options),
      clock_(std::move(clock)),
      arena_(std::move(arena)),
      dram_(std::make_shared<DramTier>(arena_, options.eviction)),
      grants_(std::make_shared<GrantTable>()),
      nvme_(std::move(nvme)),
      shared_(std::move(shared)),
      shared_reader_(shared_ == nullptr
                         ? nullptr
                         : std::make_unique<SharedReader>(shared_.get(), clock_.get(), options.shared.read)),
      shared_write_back_(shared_ == nullptr
                             ? nullptr
                             : std::make_unique<SharedWriteBack>(dram_, nvme_.get(), shared_.get(), clock_.get())),
      hasher_(nvme_->secret()),
      namespaces_(nvme_.get(), options.ttl),
      worker_(std::make_unique<Worker>()),
      write_back_(dram_, nvme_.get(), worker_.get(),
                  [this](const DramBlock& block) {
                    OfferShared(block.ns(), {&block.key(), 1}, dram_->Expiry(block.key()));
                  }),
      promotion_(dram_, nvme_.get(), shared_reader_.get()),
      removal_(dram_, nvme_.get(), &write_back_, worker_.get(),
               {.tier = shared_.get(), .reader = shared_reader_.get(), .write_back = shared_write_back_.get()}),
      pinning_(dram_, nvme_.get(), &write_back_, worker_.get()) {
  nvme_->RegisterBuffer(arena_->memory());
  ScheduleSweep();
}

LocalStoreImpl::~LocalStoreImpl() {
  const absl::Status flushed = AwaitStatus([this](DoneStatus done) { Flush({}, std::move(done)); });
  if (!flushed.ok()) {
    spdlog::warn("blocks lost at closing the store: {}", std::string(flushed.message()));
  }
  DrainShared();
  calls_.WaitUntilNone();
  // Threads that may still be leaving a completion of ours: joined before what they would touch goes.
  worker_.reset();
  shared_.reset();
  nvme_.reset();
}

void LocalStoreImpl::DrainShared() {
  if (shared_ == nullptr) return;
  auto drained = std::make_shared<absl::Notification>();
  shared_write_back_->Flush([drained](const absl::Status&) { drained->Notify(); });
  if (!drained->WaitForNotificationWithTimeout(options_.shared.drain_timeout)) {
    spdlog::warn("closing the store: {} blocks were not written to the shared folder in time",
                 shared_write_back_->pending());
  }
  shared_write_back_->Close();
  shared_reader_->Close();
}

void LocalStoreImpl::ScheduleSweep() {
  worker_->PostAfter(kSweepInterval, [this] {
    if (const absl::Status status = Sweep(); !status.ok()) {
      spdlog::warn("expiry failed, will be tried again: {}", std::string(status.message()));
    }
    ScheduleSweep();
  });
}

absl::StatusOr<Namespace> LocalStoreImpl::OpenNamespace(const NamespaceSpec& spec, const NamespaceOptions& options) {
  if (const absl::Status status = spec.Validate(); !status.ok()) return status;
  if (options.ttl && *options.ttl <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError("a namespace's ttl must be positive");
  }
  const RecordShape shape{.block_tokens = spec.block_tokens, .layers = spec.layers, .layer_bytes = spec.layer_bytes};
  if (!arena_->Fits(shape.record_bytes())) {
    return absl::InvalidArgumentError(
        fmt::format("a block of this namespace takes {} bytes; the DRAM tier has {}: raise its size",
                    shape.record_bytes(), arena_->memory().size()));
  }
  if (shape.record_bytes() > options_.nvme.segment_bytes) {
    return absl::InvalidArgumentError(
        fmt::format("a block of this namespace takes {} bytes; a segment holds {}: raise the segment size",
                    shape.record_bytes(), options_.nvme.segment_bytes));
  }
  const auto known = namespaces_.Open(spec, options, hasher_.Root(spec.Canonical()));
  if (!known.ok()) return known.status();
  return (*known)->ns;
}

LocalStoreImpl::Chain LocalStoreImpl::Resident(const KnownNamespace& known, std::span<const TokenId> tokens,
                                               absl::Time now) const {
  const std::size_t block_tokens = known.shape.block_tokens;
  const std::size_t count = tokens.size() / block_tokens;
  Chain chain;
  chain.keys.reserve(count);
  chain.tiers.reserve(count);
  BlockKey parent = known.ns.id;
  for (std::size_t begin = 0; begin < count; begin += kMatchBatch) {
    std::array<BlockKey, kMatchBatch> keys;
    std::array<Presence, kMatchBatch> in_dram;
    const std::size_t batch = std::min(kMatchBatch, count - begin);
    for (std::size_t i = 0; i < batch; ++i) {
      keys[i] = parent = hasher_.Next(parent, tokens.subspan((begin + i) * block_tokens, block_tokens));
    }
    dram_->Lookup(known.ns.id, std::span(keys).first(batch), now, in_dram);
    const auto present = std::span(in_dram).first(batch);
    std::array<Presence, kMatchBatch> on_nvme;
    if (std::ranges::find(present, Presence::kAbsent) != present.end()) {
      // "Before" in whole seconds: what expires at this second has expired.
      nvme_->Lookup(known.ns.id, std::span(keys).first(batch), absl::ToUnixSeconds(now) + 1, on_nvme);
    }
    for (std::size_t i = 0; i < batch; ++i) {
      if (in_dram[i] == Presence::kExpired) return chain;
      if (in_dram[i] == Presence::kAbsent) {
        chain.continues = on_nvme[i] == Presence::kAbsent;
        if (on_nvme[i] != Presence::kPresent) return chain;
      }
      chain.keys.push_back(keys[i]);
      chain.tiers.push_back(in_dram[i] == Presence::kPresent ? Tier::kDram : Tier::kNvme);
    }
  }
  return chain;
}

bool LocalStoreImpl::IsResident(const NamespaceId& ns, const BlockKey& key, absl::Time now) const {
  const Presence in_dram = dram_->Lookup(ns, key, now);
  if (in_dram != Presence::kAbsent) return in_dram == Presence::kPresent;
  const std::optional<NvmeBlock> below = nvme_->Find(key);
  return below && below->ns == ns && !ExpiredBelow(*below, now);
}

void LocalStoreImpl::Match(const NamespaceId& ns, std::span<const TokenId> tokens, const CallOptions& options,
                           Done<PrefixMatch> done) {
  if (const absl::Status status = CheckCallOptions(options); !status.ok()) return std::move(done)(status);
  const auto known = namespaces_.Find(ns);
  if (!known.ok()) return std::move(done)(known.status());
  Chain chain = Resident(**known, tokens, Now());
  if (shared_ == nullptr || !chain.continues) return std::move(done)(PrefixMatch{.tiers = std::move(chain.tiers)});
  MatchShared(**known, tokens, std::move(chain), options, std::move(done));
}

void LocalStoreImpl::MatchShared(const KnownNamespace& known, std::span<const TokenId> tokens, Chain chain,
                                 const CallOptions& options, Done<PrefixMatch> done) {
  const absl::Time now = Now();
  const std::size_t here = chain.keys.size();
  tokens = tokens.subspan(here * known.shape.block_tokens);
  const std::vector<BlockKey> keys =
      hasher_.Chain(here == 0 ? known.ns.id : chain.keys.back(), tokens, known.shape.block_tokens);
  std::vector<Tier> tiers = std::move(chain.tiers);
  std::vector<BlockKey> missing;
  std::vector<std::size_t> places;  // in the chain, of those missing
  for (const BlockKey& key : keys) {
    const Presence in_dram = dram_->Lookup(known.ns.id, key, now);
    const std::optional<NvmeBlock> below = in_dram == Presence::kAbsent ? nvme_->Find(key) : std::nullopt;
    if (in_dram == Presence::kExpired || (below && (below->ns != known.ns.id || ExpiredBelow(*below, now)))) break;
    if (in_dram == Presence::kAbsent && !below) {
      missing.push_back(key);
      places.push_back(tiers.size());
    }
    tiers.push_back(in_dram == Presence::kPresent ? Tier::kDram : below ? Tier::kNvme : Tier::kShared);
  }
  auto finish = Finisher<absl::StatusOr<PrefixMatch>>(options, std::move(done));
  shared_reader_->CountPresent(known.ns.id, std::move(missing),
                               [finish = std::move(finish), tiers = std::move(tiers),
                                places = std::move(places)](absl::StatusOr<std::size_t> count) mutable {
                                 const std::size_t present = count.value_or(0);
                                 if (present < places.size()) tiers.resize(places[present]);
                                 finish(PrefixMatch{.tiers = std::move(tiers)});
                               });
}

void LocalStoreImpl::Acquire(const NamespaceId& ns, std::span<const TokenId> tokens, std::size_t max_blocks,
                             const CallOptions& options, Done<Lease> done) {
  const auto known = namespaces_.Find(ns);
  if (!known.ok()) return std::move(done)(known.status());
  const RecordShape& shape = (*known)->shape;
  const std::size_t blocks = std::min(max_blocks, tokens.size() / shape.block_tokens);
  tokens = tokens.first(blocks * shape.block_tokens);
  auto call = Acquisition::Call::Begin(worker_.get(), options, std::move(done));
  if (call->over()) return;
  const absl::Time now = Now();
  Acquisition::Start({.dram = dram_,
                      .nvme = nvme_.get(),
                      .promotion = &promotion_,
                      .write_back = &write_back_,
                      .shared = shared_reader_.get(),
                      .shared_write_back = shared_write_back_.get(),
                      .hits = &hits_},
                     {.ns = ns,
                      .shape = shape,
                      .keys = hasher_.Chain(ns, tokens, shape.block_tokens),
                      .now = now,
                      .expires = (*known)->Use(now)},
                     tokens, std::move(call), calls_.Enter());
}

absl::StatusOr<WriteGrant> LocalStoreImpl::Grant(const NamespaceId& ns) {
  const auto known = namespaces_.Find(ns);
  if (!known.ok()) return known.status();
  absl::StatusOr<DramBlockRef> block = dram_->Allocate(ns, (*known)->shape);
  if (!block.ok()) return block.status();
  return grants_->Issue(*std::move(block));
}

absl::StatusOr<LocalStoreImpl::Committed> LocalStoreImpl::Publish(const CommitRequest& request) {
  const auto known = namespaces_.Find(request.ns);
  if (!known.ok()) return known.status();
  const RecordShape& shape = (*known)->shape;
  if (request.tokens.size() != shape.block_tokens) {
    return absl::InvalidArgumentError(fmt::format("a block of {} tokens in a namespace of {}-token blocks",
                                                  request.tokens.size(), shape.block_tokens));
  }
  DramBlockRef block = grants_->Take(request.grant);
  if (block == nullptr) {
    return absl::InvalidArgumentError("the grant is not one of this store's, or was committed before");
  }
  if (block->ns() != request.ns) return absl::InvalidArgumentError("the grant is for another namespace");
  const absl::Time now = Now();
  if (request.parent != request.ns && !IsResident(request.ns, request.parent, now)) {
    return absl::NotFoundError("the parent block is not resident in this namespace");
  }
  const absl::Time expires = (*known)->Use(now);
  const BlockKey key = hasher_.Next(request.parent, request.tokens);
  SealRecord(block->record(),
             {.ns = request.ns,
              .parent = request.parent,
              .key = key,
              .shape = shape,
              .extent = {},
              .expires_unix_s = ExpiryToUnixSeconds(expires)},
             request.tokens);
  const std::optional<NvmeBlock> below = nvme_->Find(key);
  if (below && below->ns != request.ns) return absl::InternalError("block key is taken in another namespace");
  const auto published = dram_->Publish(std::move(block), key, request.parent, request.tokens,
                                        below ? BlockState::kBelow : BlockState::kWriting, expires);
  if (!published.ok()) return published.status();
  if (below) {
    nvme_->Touch({&key, 1}, ExpiryToUnixSeconds(expires));
    OfferShared(request.ns, {&key, 1}, expires);
  }
  ++(published->inserted && !below ? committed_ : duplicates_);
  return Committed{.block = published->block, .on_nvme = below.has_value() || !published->inserted};
}

void LocalStoreImpl::Commit(CommitRequest request, const CallOptions& options, Done<BlockKey> done) {
  if (const absl::Status status = CheckCallOptions(options); !status.ok()) return std::move(done)(status);
  const absl::StatusOr<Committed> committed = Publish(request);
  if (!committed.ok()) return std::move(done)(committed.status());
  const DramBlockRef& block = committed->block;
  if (request.durability == Durability::kMemory) {
    if (!committed->on_nvme) write_back_.Enqueue(block, nullptr);
    return std::move(done)(block->key());
  }
  auto finish = Finisher<absl::StatusOr<BlockKey>>(options, std::move(done));
  write_back_.Enqueue(block, [finish = std::move(finish), key = block->key()](const absl::Status& status) {
    status.ok() ? finish(key) : finish(status);
  });
}

void LocalStoreImpl::Touch(const NamespaceId& ns, std::span<const TokenId> tokens, const CallOptions& options,
                           Done<std::size_t> done) {
  if (const absl::Status status = CheckCallOptions(options); !status.ok()) return std::move(done)(status);
  const auto known = namespaces_.Find(ns);
  if (!known.ok()) return std::move(done)(known.status());
  const absl::Time now = Now();
  const absl::Time expires = (*known)->Use(now);
  const Chain chain = Resident(**known, tokens, now);
  dram_->Touch(chain.keys, expires);
  nvme_->Touch(chain.keys, ExpiryToUnixSeconds(expires));
  OfferShared(ns, chain.keys, expires);
  std::move(done)(chain.keys.size());
}

void LocalStoreImpl::Pin(const NamespaceId& ns, std::span<const TokenId> tokens, const CallOptions& options,
                         Done<std::size_t> done) {
  if (const absl::Status status = CheckCallOptions(options); !status.ok()) return std::move(done)(status);
  const auto known = namespaces_.Find(ns);
  if (!known.ok()) return std::move(done)(known.status());
  pinning_.Pin(Resident(**known, tokens, Now()).keys, Finisher<absl::StatusOr<std::size_t>>(options, std::move(done)));
}

void LocalStoreImpl::Unpin(const NamespaceId& ns, std::span<const TokenId> tokens, const CallOptions& options,
                           Done<std::size_t> done) {
  if (const absl::Status status = CheckCallOptions(options); !status.ok()) return std::move(done)(status);
  const auto known = namespaces_.Find(ns);
  if (!known.ok()) return std::move(done)(known.status());
  pinning_.Unpin(Resident(**known, tokens, Now()).keys,
                 Finisher<absl::StatusOr<std::size_t>>(options, std::move(done)));
}

absl::StatusOr<std::vector<NamespaceId>> LocalStoreImpl::Affected(const DropRequest& request) const {
  if ((request.ns ? 1 : 0) + (request.tenant ? 1 : 0) + (request.all ? 1 : 0) != 1) {
    return absl::InvalidArgumentError("a drop names exactly one of: a namespace, a tenant, all");
  }
  std::vector<NamespaceId> affected;
  for (const KnownNamespace* known : namespaces_.All()) {
    const bool by_ns = request.ns && known->ns.id == *request.ns;
    const bool by_tenant = request.tenant && known->ns.spec.tenant == *request.tenant;
    if (by_ns || by_tenant || request.all) affected.push_back(known->ns.id);
  }
  if (request.ns && affected.empty()) return namespaces_.Find(*request.ns).status();
  return affected;
}

void LocalStoreImpl::Drop(const DropRequest& request, const CallOptions& options, Done<DropResult> done) {
  if (const absl::Status status = CheckCallOptions(options); !status.ok()) return std::move(done)(status);
  absl::StatusOr<std::vector<NamespaceId>> affected = Affected(request);
  if (!affected.ok()) return std::move(done)(affected.status());
  removal_.Drop(*std::move(affected), Finisher<absl::StatusOr<DropResult>>(options, std::move(done)));
}

void LocalStoreImpl::Flush(const CallOptions& options, DoneStatus done) {
  if (const absl::Status status = CheckCallOptions(options); !status.ok()) return std::move(done)(status);
  auto finish = Finisher<absl::Status>(options, std::move(done));
  write_back_.Flush([this, finish = std::move(finish)](const absl::Status& written) {
    nvme_->Flush([finish, written](const absl::Status& flushed) { finish(written.ok() ? flushed : written); });
  });
}

void LocalStoreImpl::FlushShared(const CallOptions& options, DoneStatus done) {
  if (const absl::Status status = CheckCallOptions(options); !status.ok()) return std::move(done)(status);
  if (shared_ == nullptr) return std::move(done)(absl::OkStatus());
  auto finish = Finisher<absl::Status>(options, std::move(done));
  shared_write_back_->Flush([finish = std::move(finish)](const absl::Status& status) { finish(status); });
}

absl::StatusOr<StoreStats> LocalStoreImpl::Stats() {
  const DramTier::Counters dram = dram_->counters();
  const NvmeTierStats nvme = nvme_->Stats();
  StoreStats stats;
  stats.dram = {.blocks = dram.blocks, .bytes = dram.payload_bytes, .capacity_bytes = arena_->memory().size()};
  stats.nvme = nvme.tier;
  stats.namespaces = namespaces_.All().size();
  stats.leased_blocks = dram.leased_blocks;
  stats.hit_blocks_dram = hits_.dram;
  stats.hit_blocks_nvme = hits_.nvme;
  stats.miss_blocks = hits_.miss;
  stats.committed_blocks = committed_;
  stats.duplicate_commits = duplicates_;
  stats.evicted_blocks_dram = dram.evicted_blocks;
  stats.evicted_blocks_nvme = nvme.evicted_blocks;
  stats.expired_blocks = nvme.expired_blocks + expired_in_dram_;
  stats.corrupt_blocks = nvme.corrupt_blocks + dram.corrupt_blocks;
  stats.write_back_pending = write_back_.pending();
  stats.device_errors = nvme.device_errors;
  stats.loading = nvme.loading;
  if (shared_ != nullptr) {
    const ObjectTierStats shared = shared_->Stats();
    stats.shared = {.configured = true,
                    .available = shared.available,
                    .hit_blocks = hits_.shared,
                    .read_bytes = shared.read_bytes,
                    .written_blocks = shared.written_objects,
                    .written_bytes = shared.written_bytes,
                    .timeouts = shared.timeouts,
                    .errors = shared.errors,
                    .corrupt_blocks = shared.corrupt_objects,
                    .write_back_pending = shared_write_back_->pending(),
                    .write_back_dropped = shared_write_back_->dropped()};
    stats.corrupt_blocks += shared.corrupt_objects;
  }
  return stats;
}

absl::StatusOr<std::vector<NamespaceInfo>> LocalStoreImpl::ListNamespaces() {
  absl::flat_hash_map<NamespaceId, std::uint64_t> blocks;
  nvme_->ForEach([&](const NvmeBlock& block) { ++blocks[block.ns]; });
  std::vector<std::pair<NamespaceId, BlockKey>> in_dram;
  dram_->ForEach([&](const DramBlock& block) { in_dram.emplace_back(block.ns(), block.key()); });
  for (const auto& [ns, key] : in_dram) {
    if (!nvme_->Find(key)) ++blocks[ns];
  }
  std::vector<NamespaceInfo> infos;
  for (const KnownNamespace* known : namespaces_.All()) {
    const std::uint64_t count = blocks[known->ns.id];
    infos.push_back({.ns = known->ns,
                     .blocks = count,
                     .bytes = count * known->shape.payload_bytes(),
                     .last_used = known->last_used.load()});
  }
  return infos;
}

absl::Status LocalStoreImpl::Sweep() {
  const absl::Time now = Now();
  for (const BlockKey& key : dram_->Expire(now)) {
    if (!nvme_->Find(key)) ++expired_in_dram_;
  }
  SweepShared();
  // "Before" in whole seconds: what expires at this second has expired.
  return nvme_->DropExpired(absl::ToUnixSeconds(now) + 1).status();
}

void LocalStoreImpl::SweepShared() {
  if (shared_ == nullptr || sweeping_shared_.exchange(true)) return;
  shared_->Sweep([this, alive = calls_.Enter()](const absl::Status&) { sweeping_shared_ = false; });
}

// The shared folder has one secret for all stores: one that is made now takes it over, one that exists brings its own.
absl::Status OpenBelowDram(const LocalStoreOptions& options, const Clock* clock, std::unique_ptr<NvmeTier>& nvme,
                           std::unique_ptr<ObjectTier>& shared) {
  NvmeTierOptions nvme_options = options.nvme;
  nvme_options.clock = clock;
  nvme_options.eviction = options.eviction;
  const auto open_nvme = [&] {
    absl::StatusOr<std::unique_ptr<NvmeTier>> opened = NvmeTier::Open(nvme_options);
    if (opened.ok()) nvme = *std::move(opened);
    return opened.status();
  };
  if (options.shared.folder.directory.empty()) return open_nvme();

  DirectoryTierOptions folder = options.shared.folder;
  folder.clock = clock;
  const auto open_shared = [&](const std::optional<KeyHasher::Secret>& own) {
    absl::StatusOr<std::unique_ptr<ObjectTier>> opened = DirectoryTier::Open(folder, own);
    if (opened.ok()) shared = *std::move(opened);
    return opened.status();
  };
  const std::unique_ptr<FileSystem> own_fs = NewPosixFileSystem();
  FileSystem& fs = options.nvme.file_system != nullptr ? *options.nvme.file_system : *own_fs;
  const absl::StatusOr<bool> exists = fs.Exists(options.nvme.directory + "/FORMAT");
  if (exists.ok() && *exists) {
    const absl::Status opened = open_nvme();
    return opened.ok() ? open_shared(nvme->secret()) : opened;
  }
  if (absl::Status status = open_shared(std::nullopt); !status.ok()) return status;
  nvme_options.secret = shared->secret();
  return open_nvme();
}

}  // namespace

absl::StatusOr<std::unique_ptr<LocalStore>> LocalStore::Open(const LocalStoreOptions& options) {
  if (options.ttl <= absl::ZeroDuration()) return absl::InvalidArgumentError("the store's ttl must be positive");
  absl::StatusOr<std::unique_ptr<DramArena>> arena = DramArena::Create(options.dram_bytes);
  if (!arena.ok()) return arena.status();
  auto clock = std::make_unique<GuardedClock>(SystemClockIfNull(options.clock));
  std::unique_ptr<NvmeTier> nvme;
  std::unique_ptr<ObjectTier> shared;
  if (const absl::Status status = OpenBelowDram(options, clock.get(), nvme, shared); !status.ok()) return status;
  clock->StartFrom(nvme->newest_time());
  return std::make_unique<LocalStoreImpl>(options, std::move(clock), *std::move(arena), std::move(nvme),
                                          std::move(shared));
}

}  // namespace kvist
