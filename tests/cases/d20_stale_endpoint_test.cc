// D20: a crash leaves a socket file that blocks the restart; fixed paths connect to the wrong instance.
#include <filesystem>
#include <fstream>

#include "gmock/gmock.h"
#include "tests/src/testing/blocks.h"
#include "tests/src/testing/connect.h"
#include "tests/src/testing/daemon_process.h"
#include "tests/src/testing/scratch.h"

namespace kvist {
namespace {

using testing::DaemonProcess;

TEST(D20StaleEndpoint, RestartsOverTheSocketOfAKilledDaemon) {
  const testing::Scratch scratch;
  const DaemonProcess::Options options{.socket = scratch.path("s"), .directory = scratch.path("store")};
  NamespaceId id;
  for (int round = 0; round < 3; ++round) {
    auto daemon = DaemonProcess::Start(options);
    ASSERT_TRUE(daemon.ok()) << daemon.status();
    const auto store = testing::Connect(options.socket);
    const auto ns = store->OpenNamespace(testing::SmallSpec(), {});
    ASSERT_TRUE(ns.ok()) << ns.status();
    if (round == 0) {
      id = ns->id;
      ASSERT_TRUE(testing::PutPrompt(store.get(), id, 5, 1, Durability::kDurable).ok());
    }
    EXPECT_EQ(ns->id, id);
    EXPECT_EQ(testing::GoodHits(store.get(), id, 5), 5);
    daemon->Kill();
    EXPECT_TRUE(std::filesystem::is_socket(options.socket)) << "as a crash leaves it";
  }
}

TEST(D20StaleEndpoint, OneOfTwoSimultaneousStartsWins) {
  const testing::Scratch scratch;
  const std::string socket = scratch.path("s");
  for (int round = 0; round < 3; ++round) {
    std::vector<DaemonProcess> daemons;
    for (const char* name : {"one", "two", "three"}) {
      daemons.push_back(DaemonProcess::Spawn({.socket = socket, .directory = scratch.path(name)}));
    }
    int serving = 0;
    for (DaemonProcess& daemon : daemons) {
      if (daemon.WaitReady()) {
        ++serving;
      } else {
        EXPECT_EQ(daemon.WaitExit(), 1);
        EXPECT_THAT(daemon.Log(), ::testing::HasSubstr("another kvistd"));
      }
    }
    EXPECT_EQ(serving, 1);
    EXPECT_TRUE(testing::Connect(socket)->Stats().ok());
    for (DaemonProcess& daemon : daemons) daemon.Kill();  // leaves a stale socket for the next round
  }
}

TEST(D20StaleEndpoint, NeverDeletesAPlainFile) {
  const testing::Scratch scratch;
  std::ofstream(scratch.path("s")) << "precious";
  DaemonProcess daemon = DaemonProcess::Spawn({.socket = scratch.path("s"), .directory = scratch.path("store")});
  EXPECT_EQ(daemon.WaitExit(), 1);
  EXPECT_THAT(daemon.Log(), ::testing::HasSubstr("not a socket"));
  EXPECT_EQ(std::filesystem::file_size(scratch.path("s")), 8u);
}

TEST(D20StaleEndpoint, TwoInstancesDoNotTalkAcross) {
  const testing::Scratch scratch;
  auto one = DaemonProcess::Start({.socket = scratch.path("s1"), .directory = scratch.path("one")});
  auto two = DaemonProcess::Start({.socket = scratch.path("s2"), .directory = scratch.path("two")});
  ASSERT_TRUE(one.ok() && two.ok()) << one.status() << two.status();
  const auto first = testing::Connect(scratch.path("s1"));
  const auto second = testing::Connect(scratch.path("s2"));
  const auto ns = first->OpenNamespace(testing::SmallSpec(), {});
  const auto other = second->OpenNamespace(testing::SmallSpec(), {});
  ASSERT_TRUE(ns.ok() && other.ok());
  ASSERT_TRUE(testing::PutPrompt(first.get(), ns->id, 4).ok());
  EXPECT_EQ(testing::GoodHits(first.get(), ns->id, 4), 4);
  EXPECT_EQ(testing::GoodHits(second.get(), other->id, 4), 0);
}

}  // namespace
}  // namespace kvist
