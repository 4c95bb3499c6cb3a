// Server: serves one LocalStore on one UNIX socket, with threads of its own.
//
// Tenancy over a UNIX socket is trusted: every client runs as the daemon's user (or root), sees all namespaces and may
// drop any. Salts keep tenants' blocks apart, not malicious processes of one user.
//
// Thread safety: Stop and stats from any thread.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cachestore/local_store.h"
#include "src/daemon/endpoint.h"
#include "src/daemon/limits.h"
#include "src/daemon/session_context.h"

namespace kvist::daemon {

struct ServerOptions {
  Limits limits;
  std::size_t threads = 2;                           // they copy payloads in and answer; the store has its own
  absl::Duration drain_timeout = absl::Seconds(10);  // how long Stop lets work under way finish before cancelling it
};

class Server {
 public:
  // Listens and serves. Store and endpoint must outlive the server: the endpoint's lock is best held until the store is
  // closed, so that the next daemon finds both free.
  static absl::StatusOr<std::unique_ptr<Server>> Start(LocalStore* store, Endpoint* endpoint,
                                                       const ServerOptions& options);
  virtual ~Server() = default;  // stops

  // Removes the socket, finishes what is under way, closes all connections. Leases are held until nothing can write
  // any more. Does not flush the store. Idempotent.
  virtual void Stop() = 0;

  virtual ServerStats stats() const = 0;
};

}  // namespace kvist::daemon
