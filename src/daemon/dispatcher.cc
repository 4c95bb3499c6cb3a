#include "src/daemon/dispatcher.h"

#include <algorithm>
#include <boost/asio/post.hpp>
#include <cstring>
#include <string>
#include <vector>

#include "fmt/format.h"
#include "src/protocol/convert.h"
#include "src/protocol/frame.h"

namespace kvist::daemon {

Dispatcher::Dispatcher(std::shared_ptr<SessionContext> context, boost::asio::any_io_executor strand, Respond respond)
    : context_(std::move(context)), strand_(std::move(strand)), respond_(std::move(respond)) {}

Dispatcher::~Dispatcher() { ReleaseLeases(); }

absl::Status Dispatcher::Handle(const v1::Request& request, std::size_t frame_bytes) {
  if (request.id() == 0) return absl::InvalidArgumentError("request without an id");
  if (request.has_release_lease()) {
    const auto it = leases_.find(request.release_lease().lease());
    if (it == leases_.end()) return absl::OkStatus();
    const std::size_t blocks = it->second.blocks().size();
    leased_blocks_ -= blocks;
    context_->AddLeased(-static_cast<std::int64_t>(blocks));
    leases_.erase(it);
    return absl::OkStatus();
  }
  if (request.has_cancel()) {
    const auto it = outstanding_.find(request.cancel().request());
    if (it != outstanding_.end()) it->second.stop.request_stop();
    return absl::OkStatus();
  }
  if (outstanding_.contains(request.id())) return absl::InvalidArgumentError("two requests with one id");
  if (request.has_hello()) return absl::InvalidArgumentError("a second Hello");
  if (const auto refusal = Admit(request, frame_bytes); refusal.has_value()) {
    Answer(request.id(), *refusal);
    return absl::OkStatus();
  }
  Start(request);
  return absl::OkStatus();
}

std::optional<absl::Status> Dispatcher::Admit(const v1::Request& request, std::size_t frame_bytes) {
  if (draining_) return absl::UnavailableError("kvistd is stopping");
  if (request.body_case() == v1::Request::BODY_NOT_SET) {
    return absl::UnimplementedError("this kvistd does not know the request");
  }
  const Limits& limits = context_->limits();
  if (outstanding_.size() >= limits.outstanding_requests ||
      outstanding_bytes_ + frame_bytes > limits.outstanding_bytes) {
    return absl::ResourceExhaustedError(
        fmt::format("{} requests of {} bytes are outstanding; {} and {} bytes are allowed", outstanding_.size(),
                    outstanding_bytes_, limits.outstanding_requests, limits.outstanding_bytes));
  }
  outstanding_[request.id()].frame_bytes = frame_bytes;
  outstanding_bytes_ += frame_bytes;
  context_->OperationBegins();
  return std::nullopt;
}

void Dispatcher::Start(const v1::Request& request) {
  const std::uint64_t id = request.id();
  switch (request.body_case()) {
    case v1::Request::kOpenNamespace:
      return OpenNamespace(id, request.open_namespace());
    case v1::Request::kMatch:
      return Match(id, request.match());
    case v1::Request::kAcquire:
      return Acquire(id, request.acquire());
    case v1::Request::kCommit:
      return Commit(id, request.commit());
    case v1::Request::kTouch:
      return Count(id, request.touch(), &PrefixStore::Touch);
    case v1::Request::kPin:
      return Count(id, request.pin(), &PrefixStore::Pin);
    case v1::Request::kUnpin:
      return Count(id, request.unpin(), &PrefixStore::Unpin);
    case v1::Request::kDrop:
      return Drop(id, request.drop());
    case v1::Request::kFlush:
      return Flush(id);
    case v1::Request::kStats:
      return Stats(id);
    case v1::Request::kListNamespaces:
      return ListNamespaces(id);
    default:
      return FinishError(id, absl::UnimplementedError("this kvistd does not know the request"));
  }
}

template <typename T, typename Then>
Done<T> Dispatcher::OnStrand(Then then) {
  context_->OperationBegins();
  return [self = shared_from_this(), then = std::move(then)](absl::StatusOr<T> result) mutable {
    const auto context = self->context_;
    {
      const auto executor = self->strand_;
      boost::asio::post(executor, [self = std::move(self), then = std::move(then),
                                   result = std::move(result)]() mutable { then(*self, std::move(result)); });
    }
    // The store's thread was inside post until here: the server must not go away under it.
    context->OperationEnds();
  };
}

void Dispatcher::OpenNamespace(std::uint64_t id, const v1::OpenNamespace& request) {
  NamespaceOptions options;
  if (request.has_ttl_ms()) options.ttl = absl::Milliseconds(request.ttl_ms());
  const auto ns = context_->store().OpenNamespace(protocol::FromWire(request.spec()), options);
  if (!ns.ok()) return FinishError(id, ns.status());
  v1::Reply reply;
  protocol::ToWire(ns->id, reply.mutable_open_namespace()->mutable_id());
  Finish(id, std::move(reply));
}

void Dispatcher::Match(std::uint64_t id, const v1::Prefix& request) {
  auto tokens = protocol::TokensFromWire(request.tokens());
  if (!tokens.ok()) return FinishError(id, tokens.status());
  // The store may look at the tokens until it completes.
  const auto held = std::make_shared<const std::vector<TokenId>>(std::move(*tokens));
  context_->store().Match(protocol::FromWire(request.ns()), *held, OptionsOf(id),
                          OnStrand<PrefixMatch>([id, held](Dispatcher& self, absl::StatusOr<PrefixMatch> match) {
                            if (!match.ok()) return self.FinishError(id, match.status());
                            v1::Reply reply;
                            std::string* tiers = reply.mutable_match()->mutable_tiers();
                            for (const Tier tier : match->tiers) {
                              tiers->push_back(static_cast<char>(protocol::ToWire(tier, self.last_tier_)));
                            }
                            self.Finish(id, std::move(reply));
                          }));
}

void Dispatcher::Acquire(std::uint64_t id, const v1::Acquire& request) {
  auto tokens = protocol::TokensFromWire(request.tokens());
  if (!tokens.ok()) return FinishError(id, tokens.status());
  const std::size_t limit = context_->limits().leased_blocks;
  if (leased_blocks_ >= limit) {
    return FinishError(id, absl::ResourceExhaustedError(fmt::format(
                               "this client leases {} blocks, {} are allowed: drop leases", leased_blocks_, limit)));
  }
  const std::size_t max_blocks =
      std::min({static_cast<std::size_t>(request.max_blocks()), limit - leased_blocks_, kMaxBlocksPerAcquire});
  const std::size_t reserved = std::min(max_blocks, tokens->size() / kMinBlockTokens);
  leased_blocks_ += reserved;
  outstanding_[id].reserved_blocks = reserved;
  const auto held = std::make_shared<const std::vector<TokenId>>(std::move(*tokens));
  context_->store().Acquire(protocol::FromWire(request.ns()), *held, max_blocks, OptionsOf(id),
                            OnStrand<Lease>([id, held](Dispatcher& self, absl::StatusOr<Lease> lease) {
                              self.FinishLease(id, std::move(lease));
                            }));
}

void Dispatcher::FinishLease(std::uint64_t id, absl::StatusOr<Lease> lease) {
  leased_blocks_ -= outstanding_[id].reserved_blocks;
  if (!lease.ok()) return FinishError(id, lease.status());
  v1::Reply reply;
  v1::AcquireReply* acquired = reply.mutable_acquire();
  if (!lease->empty() && !ended_) {
    const std::uint64_t lease_id = next_lease_++;
    acquired->set_lease(lease_id);
    acquired->set_payload_bytes(lease->blocks().front().payload.size());
    for (const Lease::Block& block : lease->blocks()) {
      v1::AcquireReply::Block* wire = acquired->add_blocks();
      protocol::ToWire(block.key, wire->mutable_key());
      wire->set_source(protocol::ToWire(block.source, last_tier_));
      wire->set_arena_offset(context_->store().ArenaOffset(block.payload));
    }
    leased_blocks_ += lease->blocks().size();
    context_->AddLeased(static_cast<std::int64_t>(lease->blocks().size()));
    leases_.emplace(lease_id, std::move(*lease));
  }
  Finish(id, std::move(reply));
}

void Dispatcher::Commit(std::uint64_t id, const v1::Commit& request) {
  auto tokens = protocol::TokensFromWire(request.tokens());
  if (!tokens.ok()) return FinishError(id, tokens.status());
  const std::span<const std::byte> staging = staging_.bytes();
  if (request.staging_offset() > staging.size() || request.length() > staging.size() - request.staging_offset()) {
    return FinishError(
        id, absl::InvalidArgumentError(fmt::format("commit of {} bytes at {} lies outside the staging area of {} bytes",
                                                   request.length(), request.staging_offset(), staging.size())));
  }
  const NamespaceId ns = protocol::FromWire(request.ns());
  auto grant = context_->store().Grant(ns);
  if (!grant.ok()) return FinishError(id, grant.status());
  const std::span<std::byte> payload = grant->payload();
  if (payload.size() != request.length()) {
    return FinishError(id,
                       absl::InvalidArgumentError(fmt::format("commit of {} bytes; a payload of this namespace has {}",
                                                              request.length(), payload.size())));
  }
  // Copy first, then check the copy: the client can still write to its staging area, but no longer to this.
  std::memcpy(payload.data(), staging.data() + request.staging_offset(), payload.size());
  if (protocol::PayloadChecksum(payload) != request.checksum()) {
    return FinishError(id, absl::InvalidArgumentError("the payload does not match its checksum: it was changed while "
                                                      "it was being committed"));
  }
  CommitRequest commit{.ns = ns,
                       .parent = protocol::FromWire(request.parent()),
                       .tokens = std::move(*tokens),
                       .grant = std::move(*grant),
                       .durability = request.durability() == v1::DURABLE ? Durability::kDurable : Durability::kMemory};
  context_->store().Commit(std::move(commit), OptionsOf(id),
                           OnStrand<BlockKey>([id](Dispatcher& self, absl::StatusOr<BlockKey> key) {
                             if (!key.ok()) return self.FinishError(id, key.status());
                             v1::Reply reply;
                             protocol::ToWire(*key, reply.mutable_commit()->mutable_key());
                             self.Finish(id, std::move(reply));
                           }));
}

void Dispatcher::Count(std::uint64_t id, const v1::Prefix& request, CountCall call) {
  auto tokens = protocol::TokensFromWire(request.tokens());
  if (!tokens.ok()) return FinishError(id, tokens.status());
  const auto held = std::make_shared<const std::vector<TokenId>>(std::move(*tokens));
  PrefixStore& store = context_->store();
  (store.*call)(protocol::FromWire(request.ns()), *held, OptionsOf(id),
                OnStrand<std::size_t>([id, held](Dispatcher& self, absl::StatusOr<std::size_t> blocks) {
                  if (!blocks.ok()) return self.FinishError(id, blocks.status());
                  v1::Reply reply;
                  reply.mutable_count()->set_blocks(*blocks);
                  self.Finish(id, std::move(reply));
                }));
}

void Dispatcher::Drop(std::uint64_t id, const v1::Drop& request) {
  DropRequest drop;
  if (request.has_ns()) drop.ns = protocol::FromWire(request.ns());
  if (request.has_tenant()) drop.tenant = request.tenant();
  drop.all = request.all();
  context_->store().Drop(drop, OptionsOf(id),
                         OnStrand<DropResult>([id](Dispatcher& self, absl::StatusOr<DropResult> result) {
                           if (!result.ok()) return self.FinishError(id, result.status());
                           v1::Reply reply;
                           reply.mutable_drop()->set_blocks(result->blocks);
                           reply.mutable_drop()->set_bytes(result->bytes);
                           self.Finish(id, std::move(reply));
                         }));
}

void Dispatcher::Flush(std::uint64_t id) {
  auto done = OnStrand<int>([id](Dispatcher& self, const absl::StatusOr<int>& result) {
    if (!result.ok()) return self.FinishError(id, result.status());
    v1::Reply reply;
    reply.mutable_flush();
    self.Finish(id, std::move(reply));
  });
  context_->store().Flush(OptionsOf(id), [done = std::move(done)](const absl::Status& status) mutable {
    std::move(done)(status.ok() ? absl::StatusOr<int>(0) : absl::StatusOr<int>(status));
  });
}

void Dispatcher::Stats(std::uint64_t id) {
  const auto stats = context_->store().Stats();
  if (!stats.ok()) return FinishError(id, stats.status());
  v1::Reply reply;
  protocol::ToWire(*stats, reply.mutable_stats());
  Finish(id, std::move(reply));
}

void Dispatcher::ListNamespaces(std::uint64_t id) {
  const auto infos = context_->store().ListNamespaces();
  if (!infos.ok()) return FinishError(id, infos.status());
  v1::Reply reply;
  reply.mutable_list_namespaces();
  for (const NamespaceInfo& info : *infos) protocol::ToWire(info, reply.mutable_list_namespaces()->add_items());
  Finish(id, std::move(reply));
}

void Dispatcher::Finish(std::uint64_t id, v1::Reply reply) {
  const auto it = outstanding_.find(id);
  if (it == outstanding_.end()) return;
  outstanding_bytes_ -= it->second.frame_bytes;
  outstanding_.erase(it);
  reply.set_id(id);
  if (!ended_) respond_(reply);
  context_->OperationEnds();  // last: the server may stop once it sees none
}

void Dispatcher::FinishError(std::uint64_t id, const absl::Status& status) {
  v1::Reply reply;
  reply.set_code(static_cast<v1::Code>(status.raw_code()));
  reply.set_message(std::string(status.message()));
  Finish(id, std::move(reply));
}

void Dispatcher::Answer(std::uint64_t id, const absl::Status& status) {
  if (ended_) return;
  v1::Reply reply;
  reply.set_id(id);
  reply.set_code(static_cast<v1::Code>(status.raw_code()));
  reply.set_message(std::string(status.message()));
  respond_(reply);
}

void Dispatcher::End() {
  ended_ = true;
  for (auto& [id, outstanding] : outstanding_) outstanding.stop.request_stop();
}

void Dispatcher::ReleaseLeases() {
  for (const auto& [id, lease] : leases_) {
    leased_blocks_ -= lease.blocks().size();
    context_->AddLeased(-static_cast<std::int64_t>(lease.blocks().size()));
  }
  leases_.clear();
}

}  // namespace kvist::daemon
