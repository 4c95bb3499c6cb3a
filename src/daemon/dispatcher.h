// Dispatcher: turns one client's requests into store calls, and owns what the client holds: its leases and its staging
// area. The transport is Session's.
//
// Everything runs on the session's strand; store completions are posted to it. After End nothing is answered any more,
// and a lease that arrives late is dropped: the client never learned of it.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "cachestore/prefix_store.h"
#include "src/daemon/session_context.h"
#include "src/protocol/kvist.pb.h"
#include "src/protocol/mapping.h"

namespace kvist::daemon {

class Dispatcher : public std::enable_shared_from_this<Dispatcher> {
 public:
  using Respond = std::function<void(const v1::Reply&)>;

  Dispatcher(std::shared_ptr<SessionContext> context, boost::asio::any_io_executor strand, Respond respond);
  ~Dispatcher();

  // The highest tier that the client knows.
  void SetLastTier(v1::TierId tier) { last_tier_ = tier; }
  void SetStaging(protocol::Mapping staging) { staging_ = std::move(staging); }

  // Starts a request, or answers it at once. An error is a fault of the connection, which must then end.
  absl::Status Handle(const v1::Request& request, std::size_t frame_bytes);

  // New requests are answered Unavailable from now on.
  void Drain() { draining_ = true; }
  // Nothing is answered from now on; what runs is cancelled. Leases stay until ReleaseLeases.
  void End();
  void ReleaseLeases();

  std::size_t outstanding() const { return outstanding_.size(); }
  bool holds_leases() const { return !leases_.empty(); }

 private:
  struct Outstanding {
    std::size_t frame_bytes = 0;
    std::size_t reserved_blocks = 0;  // counted as leased until the lease is there
    std::stop_source stop;
  };

  std::optional<absl::Status> Admit(const v1::Request& request, std::size_t frame_bytes);
  void Start(const v1::Request& request);
  CallOptions OptionsOf(std::uint64_t id) {
    return {.timeout = absl::InfiniteDuration(), .cancel = outstanding_[id].stop.get_token()};
  }

  void OpenNamespace(std::uint64_t id, const v1::OpenNamespace& request);
  void Match(std::uint64_t id, const v1::Prefix& request);
  void Acquire(std::uint64_t id, const v1::Acquire& request);
  void Commit(std::uint64_t id, const v1::Commit& request);
  void Drop(std::uint64_t id, const v1::Drop& request);
  void Flush(std::uint64_t id);
  void Stats(std::uint64_t id);
  void ListNamespaces(std::uint64_t id);
  using CountCall = void (PrefixStore::*)(const NamespaceId&, std::span<const TokenId>, const CallOptions&,
                                          Done<std::size_t>);
  void Count(std::uint64_t id, const v1::Prefix& request, CountCall call);

  // Ends an admitted request.
  void Finish(std::uint64_t id, v1::Reply reply);
  void FinishError(std::uint64_t id, const absl::Status& status);
  void FinishLease(std::uint64_t id, absl::StatusOr<Lease> lease);
  void Answer(std::uint64_t id, const absl::Status& status);

  // A completion that carries the store's result to the strand, where `then` turns it into a reply.
  template <typename T, typename Then>
  Done<T> OnStrand(Then then);

  const std::shared_ptr<SessionContext> context_;
  const boost::asio::any_io_executor strand_;
  const Respond respond_;
  protocol::Mapping staging_;
  v1::TierId last_tier_ = v1::TIER_NVME;
  bool draining_ = false;
  bool ended_ = false;
  absl::flat_hash_map<std::uint64_t, Outstanding> outstanding_;
  std::size_t outstanding_bytes_ = 0;
  absl::flat_hash_map<std::uint64_t, Lease> leases_;
  std::uint64_t next_lease_ = 1;
  std::size_t leased_blocks_ = 0;  // reservations included
};

}  // namespace kvist::daemon
