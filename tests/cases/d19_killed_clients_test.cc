// D19: the server keeps a killed client's mappings. Many clients map the arena, take leases, are half-way through puts,
// and are SIGKILLed: leases, descriptors and mappings of the daemon return to their baseline, survivors see no change.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "absl/time/clock.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "src/client/remote_store.h"
#include "tests/src/testing/blocks.h"
#include "tests/src/testing/daemon_process.h"
#include "tests/src/testing/scratch.h"

namespace kvist {
namespace {

constexpr int kClients = 20;
constexpr int kBlocks = 6;

// A doomed client, once it holds what it is to lose.
class Doomed {
 public:
  explicit Doomed(const std::string& socket) {
    int pipes[2];
    if (::pipe(pipes) != 0) return;
    pid_ = ::fork();
    if (pid_ == 0) {
      ::dup2(pipes[1], STDOUT_FILENO);
      ::close(pipes[0]);
      const std::string blocks = std::to_string(kBlocks);
      ::execl(DOOMED_CLIENT_BINARY, "doomed_client", socket.c_str(), blocks.c_str(), nullptr);
      ::_exit(127);
    }
    ::close(pipes[1]);
    char said[8] = {};
    holds_ = ::read(pipes[0], said, sizeof(said)) == 8 && std::string(said, 7) == "holding";
    ::close(pipes[0]);
  }
  ~Doomed() { Kill(); }
  Doomed(const Doomed&) = delete;
  Doomed& operator=(const Doomed&) = delete;

  bool holds() const { return holds_; }
  void Kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

 private:
  pid_t pid_ = -1;
  bool holds_ = false;
};

struct Footprint {
  std::size_t descriptors = 0;  // sockets and shared memory
  std::size_t staging_areas = 0;
  std::uint64_t leased_blocks = 0;
  friend bool operator==(const Footprint&, const Footprint&) = default;
};

Footprint Measure(pid_t daemon, RemoteStore* store) {
  Footprint footprint;
  for (const auto& entry : std::filesystem::directory_iterator(fmt::format("/proc/{}/fd", daemon))) {
    std::error_code gone;  // the store opens and closes files of its own meanwhile
    const std::string target = std::filesystem::read_symlink(entry.path(), gone).string();
    if (target.starts_with("socket:") || target.starts_with("/memfd:")) ++footprint.descriptors;
  }
  std::ifstream maps(fmt::format("/proc/{}/maps", daemon));
  for (std::string line; std::getline(maps, line);) {
    if (line.find("kvist-staging") != line.npos) ++footprint.staging_areas;
  }
  footprint.leased_blocks = store->Stats()->leased_blocks;
  return footprint;
}

TEST(D19KilledClients, LeaveNothingBehind) {
  const testing::Scratch scratch;
  const std::string socket = scratch.path("s");
  auto daemon = testing::DaemonProcess::Start({.socket = socket, .directory = scratch.path("store")});
  ASSERT_TRUE(daemon.ok()) << daemon.status();
  RemoteStoreOptions options;
  options.socket_path = socket;
  options.staging_bytes = std::uint64_t{2} << 20;
  const auto survivor = RemoteStore::Connect(options);
  ASSERT_TRUE(survivor.ok()) << survivor.status();
  const auto ns = (*survivor)->OpenNamespace(testing::SmallSpec(), {});
  ASSERT_TRUE(ns.ok()) << ns.status();
  ASSERT_TRUE(testing::PutPrompt(survivor->get(), ns->id, kBlocks).ok());
  const auto lease = testing::AcquireAll(survivor->get(), ns->id, testing::Prompt(kBlocks));
  ASSERT_TRUE(lease.ok());
  const Footprint baseline = Measure(daemon->pid(), survivor->get());

  std::vector<std::unique_ptr<Doomed>> clients;
  for (int i = 0; i < kClients; ++i) {
    clients.push_back(std::make_unique<Doomed>(socket));
    ASSERT_TRUE(clients.back()->holds()) << i;
  }
  const Footprint loaded = Measure(daemon->pid(), survivor->get());
  EXPECT_EQ(loaded.staging_areas, baseline.staging_areas + kClients);
  EXPECT_GT(loaded.descriptors, baseline.descriptors);
  for (const auto& client : clients) client->Kill();

  Footprint after = Measure(daemon->pid(), survivor->get());
  for (int i = 0; i < 4000 && !(after == baseline); ++i) {
    absl::SleepFor(absl::Milliseconds(5));
    after = Measure(daemon->pid(), survivor->get());
  }
  EXPECT_EQ(after.descriptors, baseline.descriptors);
  EXPECT_EQ(after.staging_areas, baseline.staging_areas);
  EXPECT_EQ(after.leased_blocks, baseline.leased_blocks);
  for (std::size_t i = 0; i < kBlocks; ++i) EXPECT_TRUE(testing::PayloadIs(lease->blocks()[i].payload, 1, i));
  EXPECT_EQ(testing::GoodHits(survivor->get(), ns->id, kBlocks), kBlocks);
  EXPECT_EQ((*survivor)->Stats()->committed_blocks, static_cast<std::uint64_t>(kBlocks)) << "no half-put got in";
}

}  // namespace
}  // namespace kvist
