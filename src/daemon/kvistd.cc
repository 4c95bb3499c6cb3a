// kvistd: the store as a daemon. Exit status: 0 after a graceful stop, 1 for a fault at start or stop, 2 for a wrong
// command line or configuration.
#include <pthread.h>
#include <signal.h>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/synchronization/notification.h"
#include "cachestore/await.h"
#include "cachestore/local_store.h"
#include "cachestore/lock_order_checks.h"
#include "fmt/format.h"
#include "spdlog/sinks/stdout_color_sinks.h"
#include "spdlog/spdlog.h"
#include "src/daemon/config.h"
#include "src/daemon/config_value.h"
#include "src/daemon/endpoint.h"
#include "src/daemon/server.h"

namespace kvist::daemon {
namespace {

constexpr int kExitFault = 1;
constexpr int kExitUsage = 2;

int Report(const absl::Status& status, int code) {
  spdlog::error("{}", std::string(status.message()));
  return code;
}

// SIGTERM and SIGINT are blocked in every thread and taken here, one after the other.
sigset_t StopSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  return signals;
}

absl::Status FlushStore(LocalStore* store, absl::Duration timeout) {
  return AwaitStatus([&](DoneStatus done) { store->Flush({.timeout = timeout, .cancel = {}}, std::move(done)); });
}

int Serve(const DaemonConfig& config) {
  const auto socket_path = ExpandPath(config.socket);
  const auto directory = ExpandPath(config.directory);
  if (!socket_path.ok()) return Report(socket_path.status(), kExitUsage);
  if (!directory.ok()) return Report(directory.status(), kExitUsage);
  const auto shared =
      config.shared_directory.empty() ? absl::StatusOr<std::string>("") : ExpandPath(config.shared_directory);
  if (!shared.ok()) return Report(shared.status(), kExitUsage);

  // Before any thread is made, so that all of them block the signals.
  const sigset_t signals = StopSignals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  ::signal(SIGPIPE, SIG_IGN);

  auto endpoint = Endpoint::Reserve(*socket_path);
  if (!endpoint.ok()) return Report(endpoint.status(), kExitFault);

  LocalStoreOptions options;
  options.nvme.directory = *directory;
  options.nvme.capacity_bytes = config.nvme_bytes;
  options.nvme.segment_bytes = config.segment_bytes;
  options.nvme.queue_depth = static_cast<std::uint32_t>(config.queue_depth);
  options.dram_bytes = config.dram_bytes;
  options.ttl = config.ttl;
  options.eviction = *EvictionKindFromName(config.eviction);
  options.shared.folder.directory = *shared;
  options.shared.folder.sync = config.shared_sync;
  options.shared.folder.threads = config.shared_threads;
  options.shared.read.timeout = config.shared_timeout;
  options.shared.read.chain_timeout = config.shared_chain_timeout;
  options.shared.drain_timeout = config.shared_drain_timeout;
  auto store = LocalStore::Open(options);
  if (!store.ok()) return Report(store.status(), kExitFault);

  const ServerOptions server_options{
      .limits = config.limits, .threads = config.threads, .drain_timeout = config.drain_timeout};
  auto server = Server::Start(store->get(), &*endpoint, server_options);
  if (!server.ok()) return Report(server.status(), kExitFault);
  spdlog::info("ready: unix:{}, store {} (dram {}, nvme {}, ttl {}){}{}", *socket_path, *directory,
               BytesText(config.dram_bytes), BytesText(config.nvme_bytes), DurationText(config.ttl),
               shared->empty() ? "" : ", shared folder ", *shared);

  int signal = 0;
  sigwait(&signals, &signal);
  spdlog::info("stopping: {}", signal == SIGINT ? "SIGINT" : "SIGTERM");
  (*server)->Stop();
  const absl::Status flushed = FlushStore(store->get(), config.flush_timeout);
  server->reset();
  store->reset();
  if (!flushed.ok()) {
    return Report(
        absl::InternalError(fmt::format("DRAM was not all written to NVMe: {}; what is missing will be a miss",
                                        std::string(flushed.message()))),
        kExitFault);
  }
  spdlog::info("stopped");
  return 0;
}

int Main(int argc, char** argv) {
  SkipLockOrderChecks();
  CLI::App app("kvistd: keeps prompts' KV caches and shares them among inference engines");
  std::string path;
  std::vector<std::string> overrides;
  bool check = false;
  bool print = false;
  app.add_option("--config", path, "Configuration (TOML); without it every key has its default");
  app.add_option("--set", overrides, "Override a key: --set store.dram=4GiB (repeatable)")->allow_extra_args(false);
  app.add_flag("--check-config", check, "Check the configuration and exit");
  app.add_flag("--print-config", print, "Print the whole configuration, overrides applied, and exit");
  app.set_version_flag("--version", "kvistd 0.1.0");
  try {  // CLI11 reports by exception; it ends here
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kExitUsage;
  }
  spdlog::set_default_logger(spdlog::stderr_color_mt("kvistd"));
  const auto config = LoadConfig(path, overrides);
  if (!config.ok()) return Report(config.status(), kExitUsage);
  spdlog::set_level(spdlog::level::from_str(config->log_level == "error" ? "err" : config->log_level));
  if (print) {
    std::fputs(PrintConfig(*config).c_str(), stdout);
    return 0;
  }
  if (check) {
    fmt::print("{}: OK\n", path.empty() ? "configuration" : path);
    return 0;
  }
  return Serve(*config);
}

}  // namespace
}  // namespace kvist::daemon

int main(int argc, char** argv) { return kvist::daemon::Main(argc, argv); }
