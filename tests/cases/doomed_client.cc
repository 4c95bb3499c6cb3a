// A client that takes leases and grants, says so, and waits to be killed. For D19.
// doomed_client SOCKET BLOCKS
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "src/client/remote_store.h"
#include "tests/src/testing/blocks.h"

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  kvist::RemoteStoreOptions options;
  options.socket_path = argv[1];
  options.staging_bytes = std::uint64_t{1} << 20;
  auto store = kvist::RemoteStore::Connect(options);
  if (!store.ok()) return 1;
  const auto ns = (*store)->OpenNamespace(kvist::testing::SmallSpec(), {});
  if (!ns.ok()) return 1;
  const auto blocks = static_cast<std::size_t>(std::atoi(argv[2]));
  const auto lease = kvist::testing::AcquireAll(store->get(), ns->id, kvist::testing::Prompt(blocks));
  if (!lease.ok() || lease->blocks().size() != blocks) return 1;
  std::vector<kvist::WriteGrant> grants;
  for (int i = 0; i < 4; ++i) {
    auto grant = (*store)->Grant(ns->id);
    if (!grant.ok()) return 1;
    // Half a payload: never to be seen by anyone.
    kvist::testing::FillPayload(grant->payload().first(grant->payload().size() / 2), 77, 0);
    grants.push_back(std::move(*grant));
  }
  std::puts("holding");
  std::fflush(stdout);
  ::pause();
  return 0;
}
