// Mooncake Store beside the daemon, on the same machine, the same blocks, each side's memory written before (its pages
// are there), from and to the consumer's buffer:
//   daemon_put_vs_mooncake  Mooncake's time to put a prompt's blocks (one batch) / ours to grant, fill and commit them
//   daemon_get_vs_mooncake  Mooncake's time to get them (one batch) / ours to acquire them and copy them out
// Mooncake's client holds the blocks in its own process here, its fastest way; ours are the daemon's, where any process
// reaches them. Mooncake keeps them in memory only and does not check them; ours are given a checksum, and also go to
// NVMe (that is waited for between the rounds).
#pragma once

#include <string>

#include "bench/figures.h"
#include "src/client/remote_store.h"

namespace kvist::bench {

// Says so, and adds no figures, if Mooncake cannot be had. `directory` is for its logs.
void MooncakeFigures(const std::string& directory, RemoteStore* store, const Namespace& ns, Figures& figures);

}  // namespace kvist::bench
