#include "src/client/remote_store.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cerrno>
#include <thread>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "fmt/format.h"
#include "spdlog/spdlog.h"
#include "src/client/channel.h"
#include "src/client/handshake.h"
#include "src/protocol/convert.h"
#include "src/protocol/frame.h"

namespace kvist {
namespace {

namespace asio = boost::asio;
using client::Channel;

// What a Lease of this store holds: dropping it tells the daemon, and lets go of the connection and the mapping.
struct LeasePin {
  LeasePin(std::shared_ptr<Channel> from, std::uint64_t lease_id) : channel(std::move(from)), lease(lease_id) {}
  ~LeasePin() {
    v1::Request request;
    request.mutable_release_lease()->set_lease(lease);
    channel->Post(std::move(request));
  }
  LeasePin(const LeasePin&) = delete;
  LeasePin& operator=(const LeasePin&) = delete;

  std::shared_ptr<Channel> channel;
  std::uint64_t lease;
};

absl::StatusOr<Lease> LeaseFromReply(const std::shared_ptr<Channel>& channel, const v1::AcquireReply& reply) {
  if (reply.lease() == 0) return Lease();
  auto pin = std::make_shared<LeasePin>(channel, reply.lease());
  const std::span<const std::byte> arena = channel->arena()->bytes();
  std::vector<Lease::Block> blocks;
  blocks.reserve(static_cast<std::size_t>(reply.blocks_size()));
  for (const v1::AcquireReply::Block& block : reply.blocks()) {
    const auto source = protocol::TierFromWire(block.source());
    if (!source.ok()) return source.status();
    if (block.arena_offset() > arena.size() || reply.payload_bytes() > arena.size() - block.arena_offset()) {
      return absl::InternalError("kvistd leased a block outside its arena");
    }
    blocks.push_back({.key = protocol::FromWire(block.key()),
                      .source = *source,
                      .payload = arena.subspan(block.arena_offset(), reply.payload_bytes())});
  }
  return Lease(std::move(blocks), std::move(pin));
}

absl::StatusOr<PrefixMatch> MatchFromReply(const v1::MatchReply& reply) {
  PrefixMatch match;
  match.tiers.reserve(reply.tiers().size());
  for (const char tier : reply.tiers()) {
    const auto parsed = protocol::TierFromWire(tier);
    if (!parsed.ok()) return parsed.status();
    match.tiers.push_back(*parsed);
  }
  return match;
}

absl::Status ReplyStatus(const absl::StatusOr<v1::Reply>& reply) {
  return reply.ok() ? protocol::StatusFromWire(reply->code(), reply->message()) : reply.status();
}

class SocketStore final : public RemoteStore {
 public:
  explicit SocketStore(const RemoteStoreOptions& options)
      : options_(options), work_(asio::make_work_guard(io_)), retry_(io_), backoff_(options.reconnect_min) {}

  ~SocketStore() override {
    const std::uint64_t one = 1;
    if (stop_.valid()) [[maybe_unused]]
      const ssize_t written = ::write(stop_.get(), &one, sizeof(one));
    asio::post(io_, [this] {
      stopping_ = true;
      retry_.cancel();
      if (const auto channel = Current(); channel != nullptr) channel->Close(absl::CancelledError("the store closed"));
      SetChannel(nullptr, absl::CancelledError("the store closed"));
    });
    work_.reset();
    if (thread_.joinable()) thread_.join();
  }

  absl::Status Start() {
    stop_ = protocol::Descriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!stop_.valid()) return protocol::ErrnoStatus(errno, "making an eventfd");
    if (absl::Status status = ConnectOnce(); !status.ok()) return status;
    thread_ = std::thread([this] { io_.run(); });
    return absl::OkStatus();
  }

  bool connected() const override { return Current() != nullptr; }

  std::span<const std::byte> arena() const override {
    const auto channel = Current();
    return channel == nullptr ? std::span<const std::byte>() : channel->arena()->bytes();
  }

  absl::StatusOr<Namespace> OpenNamespace(const NamespaceSpec& spec, const NamespaceOptions& options) override {
    v1::Request request;
    protocol::ToWire(spec, request.mutable_open_namespace()->mutable_spec());
    if (options.ttl.has_value()) request.mutable_open_namespace()->set_ttl_ms(absl::ToInt64Milliseconds(*options.ttl));
    auto reply = CallAndWait(std::move(request));
    if (!reply.ok()) return reply.status();
    Namespace ns{.id = protocol::FromWire(reply->open_namespace().id()), .spec = spec};
    absl::MutexLock lock(&mutex_);
    payload_bytes_[ns.id] = spec.payload_bytes();
    return ns;
  }

  void Match(const NamespaceId& ns, std::span<const TokenId> tokens, const CallOptions& options,
             Done<PrefixMatch> done) override {
    v1::Request request;
    FillPrefix(ns, tokens, request.mutable_match());
    Call(std::move(request), options, options_.call_timeout, nullptr,
         [done = std::move(done)](absl::StatusOr<v1::Reply> reply) mutable {
           if (absl::Status status = ReplyStatus(reply); !status.ok()) return std::move(done)(std::move(status));
           std::move(done)(MatchFromReply(reply->match()));
         });
  }

  void Acquire(const NamespaceId& ns, std::span<const TokenId> tokens, std::size_t max_blocks,
               const CallOptions& options, Done<Lease> done) override {
    const auto channel = Current();
    v1::Request request;
    v1::Acquire* acquire = request.mutable_acquire();
    protocol::ToWire(ns, acquire->mutable_ns());
    acquire->set_tokens(protocol::TokensToWire(tokens));
    acquire->set_max_blocks(max_blocks);
    CallOn(channel, std::move(request), options, options_.call_timeout, nullptr,
           [channel, done = std::move(done)](absl::StatusOr<v1::Reply> reply) mutable {
             if (absl::Status status = ReplyStatus(reply); !status.ok()) return std::move(done)(std::move(status));
             std::move(done)(LeaseFromReply(channel, reply->acquire()));
           });
  }

  absl::StatusOr<WriteGrant> Grant(const NamespaceId& ns) override {
    const auto bytes = PayloadBytes(ns);
    if (!bytes.ok()) return bytes.status();
    std::shared_ptr<Channel> channel;
    {
      absl::MutexLock lock(&mutex_);
      if (channel_ == nullptr) return unavailable_;
      channel = channel_;
    }
    if (channel->staging() == nullptr) {
      return absl::ResourceExhaustedError("kvistd granted this client no staging memory: it can only read");
    }
    return channel->staging()->Allocate(ns, *bytes);
  }

  void Commit(CommitRequest request, const CallOptions& options, Done<BlockKey> done) override {
    if (request.grant.slot() == nullptr) {
      return std::move(done)(absl::InvalidArgumentError("commit without a grant: take one from Grant and fill it"));
    }
    const auto channel = Current();
    std::optional<std::uint64_t> offset;
    if (channel != nullptr && channel->staging() != nullptr) {
      offset = channel->staging()->OffsetOf(request.grant, request.ns);
    }
    if (!offset.has_value()) return std::move(done)(GrantFault());
    v1::Request wire;
    v1::Commit* commit = wire.mutable_commit();
    protocol::ToWire(request.ns, commit->mutable_ns());
    protocol::ToWire(request.parent, commit->mutable_parent());
    commit->set_tokens(protocol::TokensToWire(request.tokens));
    commit->set_staging_offset(*offset);
    commit->set_length(request.grant.payload().size());
    commit->set_checksum(protocol::PayloadChecksum(request.grant.payload()));
    commit->set_durability(request.durability == Durability::kDurable ? v1::DURABLE : v1::MEMORY);
    CallOn(channel, std::move(wire), options, options_.call_timeout, request.grant.slot(),
           [done = std::move(done)](absl::StatusOr<v1::Reply> reply) mutable {
             if (absl::Status status = ReplyStatus(reply); !status.ok()) return std::move(done)(std::move(status));
             std::move(done)(protocol::FromWire(reply->commit().key()));
           });
  }

  void Touch(const NamespaceId& ns, std::span<const TokenId> tokens, const CallOptions& options,
             Done<std::size_t> done) override {
    v1::Request request;
    FillPrefix(ns, tokens, request.mutable_touch());
    CallForCount(std::move(request), options, std::move(done));
  }

  void Pin(const NamespaceId& ns, std::span<const TokenId> tokens, const CallOptions& options,
           Done<std::size_t> done) override {
    v1::Request request;
    FillPrefix(ns, tokens, request.mutable_pin());
    CallForCount(std::move(request), options, std::move(done));
  }

  void Unpin(const NamespaceId& ns, std::span<const TokenId> tokens, const CallOptions& options,
             Done<std::size_t> done) override {
    v1::Request request;
    FillPrefix(ns, tokens, request.mutable_unpin());
    CallForCount(std::move(request), options, std::move(done));
  }

  void Drop(const DropRequest& request, const CallOptions& options, Done<DropResult> done) override {
    if (int{request.ns.has_value()} + int{request.tenant.has_value()} + int{request.all} != 1) {
      return std::move(done)(absl::InvalidArgumentError("drop: name exactly one of namespace, tenant, all"));
    }
    v1::Request wire;
    if (request.ns.has_value()) protocol::ToWire(*request.ns, wire.mutable_drop()->mutable_ns());
    if (request.tenant.has_value()) wire.mutable_drop()->set_tenant(*request.tenant);
    if (request.all) wire.mutable_drop()->set_all(true);
    Call(std::move(wire), options, options_.call_timeout, nullptr,
         [done = std::move(done)](absl::StatusOr<v1::Reply> reply) mutable {
           if (absl::Status status = ReplyStatus(reply); !status.ok()) return std::move(done)(std::move(status));
           std::move(done)(DropResult{.blocks = reply->drop().blocks(), .bytes = reply->drop().bytes()});
         });
  }

  void Flush(const CallOptions& options, DoneStatus done) override {
    v1::Request request;
    request.mutable_flush();
    Call(std::move(request), options, options_.flush_timeout, nullptr,
         [done = std::move(done)](absl::StatusOr<v1::Reply> reply) mutable { std::move(done)(ReplyStatus(reply)); });
  }

  absl::StatusOr<StoreStats> Stats() override {
    v1::Request request;
    request.mutable_stats();
    auto reply = CallAndWait(std::move(request));
    if (!reply.ok()) return reply.status();
    return protocol::FromWire(reply->stats());
  }

  absl::StatusOr<std::vector<NamespaceInfo>> ListNamespaces() override {
    v1::Request request;
    request.mutable_list_namespaces();
    auto reply = CallAndWait(std::move(request));
    if (!reply.ok()) return reply.status();
    std::vector<NamespaceInfo> infos;
    absl::MutexLock lock(&mutex_);
    for (const auto& item : reply->list_namespaces().items()) {
      infos.push_back(protocol::FromWire(item));
      payload_bytes_[infos.back().ns.id] = infos.back().ns.spec.payload_bytes();
    }
    return infos;
  }

 private:
  static void FillPrefix(const NamespaceId& ns, std::span<const TokenId> tokens, v1::Prefix* prefix) {
    protocol::ToWire(ns, prefix->mutable_ns());
    prefix->set_tokens(protocol::TokensToWire(tokens));
  }

  std::shared_ptr<Channel> Current() const {
    absl::MutexLock lock(&mutex_);
    return channel_;
  }

  void SetChannel(std::shared_ptr<Channel> channel, absl::Status unavailable) {
    absl::MutexLock lock(&mutex_);
    channel_.swap(channel);
    unavailable_ = std::move(unavailable);
  }

  // Known from OpenNamespace; for a namespace opened elsewhere (before a restart, say) the daemon is asked once.
  absl::StatusOr<std::uint64_t> PayloadBytes(const NamespaceId& ns) {
    for (const bool asked : {false, true}) {
      if (asked) {
        if (const auto listed = ListNamespaces(); !listed.ok()) return listed.status();
      }
      absl::MutexLock lock(&mutex_);
      if (const auto it = payload_bytes_.find(ns); it != payload_bytes_.end()) return it->second;
    }
    return absl::NotFoundError(fmt::format("namespace {} is unknown: call OpenNamespace", ns.ToHex()));
  }

  absl::Status GrantFault() {
    absl::MutexLock lock(&mutex_);
    if (channel_ == nullptr) return unavailable_;
    if (connections_ > 1)
      return absl::UnavailableError("the connection that granted this slot is gone: take a new one");
    return absl::InvalidArgumentError("the grant is not from this store and namespace");
  }

  void Call(v1::Request request, const CallOptions& options, absl::Duration limit, std::shared_ptr<void> keep,
            Channel::OnReply done) {
    CallOn(Current(), std::move(request), options, limit, std::move(keep), std::move(done));
  }

  void CallOn(const std::shared_ptr<Channel>& channel, v1::Request request, const CallOptions& options,
              absl::Duration limit, std::shared_ptr<void> keep, Channel::OnReply done) {
    if (channel == nullptr) {
      absl::Status status;
      {
        absl::MutexLock lock(&mutex_);
        status = unavailable_.ok() ? absl::UnavailableError("reconnecting to kvistd") : unavailable_;
      }
      return std::move(done)(std::move(status));
    }
    const CallOptions bounded{.timeout = std::min(options.timeout, limit), .cancel = options.cancel};
    channel->Call(std::move(request), bounded, std::move(keep), std::move(done));
  }

  void CallForCount(v1::Request request, const CallOptions& options, Done<std::size_t> done) {
    Call(std::move(request), options, options_.call_timeout, nullptr,
         [done = std::move(done)](absl::StatusOr<v1::Reply> reply) mutable {
           if (absl::Status status = ReplyStatus(reply); !status.ok()) return std::move(done)(std::move(status));
           std::move(done)(static_cast<std::size_t>(reply->count().blocks()));
         });
  }

  absl::StatusOr<v1::Reply> CallAndWait(v1::Request request) {
    if (std::this_thread::get_id() == thread_.get_id()) {
      return absl::FailedPreconditionError("a blocking call inside a completion: make it from a thread of your own");
    }
    struct State {
      absl::Notification done;
      absl::StatusOr<v1::Reply> reply;
    };
    auto state = std::make_shared<State>();
    Call(std::move(request), {}, options_.call_timeout, nullptr, [state](absl::StatusOr<v1::Reply> reply) {
      state->reply = std::move(reply);
      state->done.Notify();
    });
    state->done.WaitForNotification();
    if (absl::Status status = ReplyStatus(state->reply); !status.ok()) return status;
    return std::move(state->reply);
  }

  // On the store's thread, except the first time, when there is none yet.
  absl::Status ConnectOnce() {
    auto attachment = client::Attach(options_, stop_.get());
    if (!attachment.ok()) return attachment.status();
    auto channel = Channel::Create(&io_, std::move(*attachment), [this](const absl::Status& why) { OnLost(why); });
    if (!channel.ok()) return channel.status();
    {
      absl::MutexLock lock(&mutex_);
      channel_ = *channel;
      ++connections_;
    }
    (*channel)->Start();
    return absl::OkStatus();
  }

  void OnLost(const absl::Status& why) {
    spdlog::warn("connection to {} lost: {}; reconnecting", options_.socket_path, std::string(why.message()));
    SetChannel(nullptr, why);
    backoff_ = options_.reconnect_min;
    Retry();
  }

  void Retry() {
    if (stopping_) return;
    retry_.expires_after(absl::ToChronoNanoseconds(backoff_));
    retry_.async_wait([this](const boost::system::error_code& error) {
      if (error || stopping_) return;
      const absl::Status status = ConnectOnce();
      if (status.ok()) {
        spdlog::info("reconnected to {}", options_.socket_path);
        return;
      }
      SetChannel(nullptr, absl::UnavailableError(std::string(status.message())));
      backoff_ = std::min(backoff_ * 2, options_.reconnect_max);
      Retry();
    });
  }

  const RemoteStoreOptions options_;
  asio::io_context io_{1};
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  asio::steady_timer retry_;   // on the store's thread only
  absl::Duration backoff_;     // likewise
  bool stopping_ = false;      // likewise
  protocol::Descriptor stop_;  // readable once the store is being destroyed
  std::thread thread_;

  mutable absl::Mutex mutex_;
  std::shared_ptr<Channel> channel_ ABSL_GUARDED_BY(mutex_);  // null while disconnected
  absl::Status unavailable_ ABSL_GUARDED_BY(mutex_);          // why
  std::uint64_t connections_ ABSL_GUARDED_BY(mutex_) = 0;     // made so far
  absl::flat_hash_map<NamespaceId, std::uint64_t> payload_bytes_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

absl::StatusOr<std::unique_ptr<RemoteStore>> RemoteStore::Connect(const RemoteStoreOptions& options) {
  auto store = std::make_unique<SocketStore>(options);
  if (absl::Status status = store->Start(); !status.ok()) return status;
  return store;
}

}  // namespace kvist
