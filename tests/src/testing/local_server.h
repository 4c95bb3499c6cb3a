// A LocalStore served on a socket by this very process, with a clock the test steers.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "cachestore/io/clock.h"
#include "cachestore/local_store.h"
#include "src/daemon/endpoint.h"
#include "src/daemon/server.h"

namespace kvist::testing {

struct LocalServer {
  std::unique_ptr<daemon::Endpoint> endpoint;
  std::unique_ptr<LocalStore> store;
  std::unique_ptr<daemon::Server> server;

  static absl::StatusOr<LocalServer> Start(const std::string& socket, const LocalStoreOptions& store_options,
                                           const daemon::ServerOptions& options = {}) {
    auto endpoint = daemon::Endpoint::Reserve(socket);
    if (!endpoint.ok()) return endpoint.status();
    LocalServer local;
    local.endpoint = std::make_unique<daemon::Endpoint>(std::move(*endpoint));
    auto store = LocalStore::Open(store_options);
    if (!store.ok()) return store.status();
    local.store = std::move(*store);
    auto server = daemon::Server::Start(local.store.get(), local.endpoint.get(), options);
    if (!server.ok()) return server.status();
    local.server = std::move(*server);
    return local;
  }
};

inline LocalStoreOptions SmallStore(const std::string& directory, const Clock* clock = nullptr) {
  LocalStoreOptions options;
  options.nvme.directory = directory;
  options.nvme.capacity_bytes = std::uint64_t{64} << 20;
  options.nvme.segment_bytes = std::uint64_t{16} << 20;
  options.dram_bytes = std::uint64_t{32} << 20;
  options.clock = clock;
  return options;
}

}  // namespace kvist::testing
