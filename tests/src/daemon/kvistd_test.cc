// The daemon as a process: start, refusals, graceful stop.
#include <filesystem>

#include "gmock/gmock.h"
#include "tests/src/testing/blocks.h"
#include "tests/src/testing/connect.h"
#include "tests/src/testing/daemon_process.h"
#include "tests/src/testing/scratch.h"

namespace kvist::daemon {
namespace {

using testing::DaemonProcess;
using ::testing::HasSubstr;

TEST(Kvistd, FlushesAtAGracefulStopAndLeavesNoSocket) {
  const testing::Scratch scratch;
  const DaemonProcess::Options options{.socket = scratch.path("s"), .directory = scratch.path("store")};
  NamespaceId id;
  {
    auto daemon = DaemonProcess::Start(options);
    ASSERT_TRUE(daemon.ok()) << daemon.status();
    const auto store = testing::Connect(options.socket);
    const auto ns = store->OpenNamespace(testing::SmallSpec(), {});
    ASSERT_TRUE(ns.ok()) << ns.status();
    id = ns->id;
    ASSERT_TRUE(testing::PutPrompt(store.get(), id, 40).ok());
    EXPECT_EQ(daemon->Terminate(), 0) << daemon->Log();
  }
  EXPECT_FALSE(std::filesystem::exists(options.socket));
  EXPECT_FALSE(std::filesystem::exists(options.socket + ".lock"));
  auto daemon = DaemonProcess::Start(options);
  ASSERT_TRUE(daemon.ok()) << daemon.status();
  const auto store = testing::Connect(options.socket);
  EXPECT_EQ(testing::GoodHits(store.get(), id, 40), 40);
  EXPECT_EQ(store->Stats()->hit_blocks_nvme, 40u);
}

TEST(Kvistd, RefusesADirectoryOrASocketThatIsInUse) {
  const testing::Scratch scratch;
  auto first = DaemonProcess::Start({.socket = scratch.path("s"), .directory = scratch.path("store")});
  ASSERT_TRUE(first.ok()) << first.status();
  DaemonProcess same_socket = DaemonProcess::Spawn({.socket = scratch.path("s"), .directory = scratch.path("other")});
  EXPECT_EQ(same_socket.WaitExit(), 1);
  EXPECT_THAT(same_socket.Log(), HasSubstr("another kvistd"));
  EXPECT_FALSE(std::filesystem::exists(scratch.path("other"))) << "refused before a store is made";
  DaemonProcess same_store = DaemonProcess::Spawn({.socket = scratch.path("t"), .directory = scratch.path("store")});
  EXPECT_EQ(same_store.WaitExit(), 1);
  EXPECT_THAT(same_store.Log(), HasSubstr("in use"));
  const auto store = testing::Connect(scratch.path("s"));
  EXPECT_TRUE(store->Stats().ok());
}

TEST(Kvistd, ExitsWithTheKeyOfAWrongSetting) {
  const testing::Scratch scratch;
  DaemonProcess daemon = DaemonProcess::Spawn(
      {.socket = scratch.path("s"), .directory = scratch.path("store"), .settings = {"store.dram=lots"}});
  EXPECT_EQ(daemon.WaitExit(), 2);
  EXPECT_THAT(daemon.Log(), HasSubstr("store.dram"));
}

TEST(Kvistd, NamesADirectoryItCannotUse) {
  const testing::Scratch scratch;
  DaemonProcess daemon =
      DaemonProcess::Spawn({.socket = scratch.path("s"), .directory = "/proc/kvist-store", .settings = {}});
  EXPECT_EQ(daemon.WaitExit(), 1);
  EXPECT_FALSE(std::filesystem::exists(scratch.path("s")));
}

}  // namespace
}  // namespace kvist::daemon
