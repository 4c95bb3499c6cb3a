// Redis beside the daemon, both over a UNIX socket on the same machine, the same blocks:
//   daemon_put_vs_redis  Redis' time to SET a prompt's blocks (pipelined) / ours to grant, fill and commit them
//   daemon_get_vs_redis  Redis' time to GET them (pipelined) / ours to acquire them and copy them out
// Redis keeps them in memory only here (no snapshots, no log); ours also writes them to NVMe meanwhile.
#pragma once

#include <string>

#include "bench/figures.h"
#include "src/client/remote_store.h"

namespace kvist::bench {

// Needs redis-server; `directory` is for its socket.
void RedisFigures(const std::string& directory, RemoteStore* store, const Namespace& ns, Figures& figures);

}  // namespace kvist::bench
