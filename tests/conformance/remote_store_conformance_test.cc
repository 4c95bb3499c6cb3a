// The suite on a RemoteStore: a server in this process (its clock is steered), a real socket, real shared memory.
#include <optional>

#include "src/client/remote_store.h"
#include "tests/conformance/local_store_factory.h"
#include "tests/src/testing/local_server.h"

namespace kvist {
namespace {

class RemoteStoreFactory : public StoreFactory {
 public:
  absl::StatusOr<std::unique_ptr<PrefixStore>> Open(const StoreSetup& setup) override {
    server_.reset();
    LocalStoreOptions options;
    options.nvme.directory = directory_.path() + "/store";
    options.nvme.capacity_bytes = setup.nvme_bytes;
    options.nvme.segment_bytes = setup.segment_bytes;
    options.dram_bytes = setup.dram_bytes;
    options.ttl = setup.ttl;
    options.clock = &clock_;
    const std::string socket = directory_.path() + "/s";
    auto server = testing::LocalServer::Start(socket, options);
    if (!server.ok()) return server.status();
    server_.emplace(std::move(*server));
    RemoteStoreOptions remote;
    remote.socket_path = socket;
    auto store = RemoteStore::Connect(remote);
    if (!store.ok()) return store.status();
    return std::unique_ptr<PrefixStore>(std::move(*store));
  }
  FakeClock& clock() override { return clock_; }

 private:
  TestDirectory directory_;
  FakeClock clock_;
  std::optional<testing::LocalServer> server_;
};

std::unique_ptr<StoreFactory> MakeRemoteStoreFactory() { return std::make_unique<RemoteStoreFactory>(); }

INSTANTIATE_TEST_SUITE_P(Remote, PrefixStoreConformance, ::testing::Values(&MakeRemoteStoreFactory));

}  // namespace
}  // namespace kvist
