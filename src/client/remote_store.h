// RemoteStore: the PrefixStore of a kvistd on this machine.
//
// A leased payload lies in the daemon's own DRAM arena, mapped read-only: a hit copies nothing. A grant is a slot of a
// staging area private to this connection; the daemon copies and verifies it at Commit.
//
// When the connection is lost, everything outstanding fails with Unavailable at once, later calls fail at once too, and
// the store reconnects by itself (backoff between reconnect_min and reconnect_max). Leases from a lost connection stay
// valid memory with the right contents until they are dropped. Grants of a lost connection can no longer be committed.
//
// Thread safety: as PrefixStore. Completions run on the store's one thread (or the caller's). The calls that block
// (OpenNamespace, Stats, ListNamespaces, and the first Grant for a namespace not opened here) answer FailedPrecondition
// inside a completion instead of deadlocking; the store must not be destroyed inside one. Leases may outlive the store;
// grants must not be filled after it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cachestore/prefix_store.h"

namespace kvist {

struct RemoteStoreOptions {
  std::string socket_path;
  std::string client_name = "kvist";  // in the daemon's log

  // Payloads being filled or committed at once. 256 MiB holds a 10,000-token prompt of a small model; pages never
  // touched cost nothing. The daemon may grant less. 0 for a client that never commits.
  std::uint64_t staging_bytes = std::uint64_t{256} << 20;

  absl::Duration handshake_timeout = absl::Seconds(5);
  // Bounds on calls without a shorter timeout of their own: a daemon that is alive but stuck must not hang an engine.
  absl::Duration call_timeout = absl::Seconds(30);
  absl::Duration flush_timeout = absl::Minutes(10);  // a flush may write all of DRAM to a slow disk

  absl::Duration reconnect_min = absl::Milliseconds(20);
  absl::Duration reconnect_max = absl::Seconds(1);
};

class RemoteStore : public PrefixStore {
 public:
  // Connects now: Unavailable (no daemon there: says how to start one), PermissionDenied, FailedPrecondition (no
  // protocol version in common), ResourceExhausted (the daemon has too many clients), DeadlineExceeded.
  static absl::StatusOr<std::unique_ptr<RemoteStore>> Connect(const RemoteStoreOptions& options);

  virtual bool connected() const = 0;

  // The mapped arena of the present connection (empty if none): leased payloads lie inside it.
  virtual std::span<const std::byte> arena() const = 0;
};

}  // namespace kvist
