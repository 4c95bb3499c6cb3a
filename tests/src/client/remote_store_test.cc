// What RemoteStore does beyond the conformance suite: loss, reconnection, stuck daemons, leases that outlive it.
#include "src/client/remote_store.h"

#include <signal.h>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "tests/src/testing/blocks.h"
#include "tests/src/testing/connect.h"
#include "tests/src/testing/daemon_process.h"
#include "tests/src/testing/local_server.h"
#include "tests/src/testing/scratch.h"

namespace kvist {
namespace {

using testing::DaemonProcess;
using testing::GoodHits;
using testing::Prompt;

class RemoteStoreTest : public ::testing::Test {
 protected:
  DaemonProcess StartDaemon() {
    auto daemon = DaemonProcess::Start({.socket = scratch_.path("s"), .directory = scratch_.path("store")});
    if (!daemon.ok()) ADD_FAILURE() << daemon.status();
    return std::move(daemon).value();
  }

  std::unique_ptr<RemoteStore> Connect() { return testing::Connect(scratch_.path("s")); }

  Namespace Open(RemoteStore* store, const std::string& salt = "") {
    auto ns = store->OpenNamespace(testing::SmallSpec(salt), {});
    if (!ns.ok()) ADD_FAILURE() << ns.status();
    return ns.value_or(Namespace{});
  }

  static bool AwaitConnected(const RemoteStore& store, bool connected) {
    for (int i = 0; i < 6000 && store.connected() != connected; ++i) absl::SleepFor(absl::Milliseconds(5));
    return store.connected() == connected;
  }

  testing::Scratch scratch_;
};

TEST_F(RemoteStoreTest, AHitLiesInTheDaemonsMemoryItself) {
  const DaemonProcess daemon = StartDaemon();
  const auto store = Connect();
  const Namespace ns = Open(store.get());
  ASSERT_TRUE(testing::PutPrompt(store.get(), ns.id, 6).ok());
  const auto lease = testing::AcquireAll(store.get(), ns.id, Prompt(6));
  ASSERT_TRUE(lease.ok());
  ASSERT_EQ(lease->blocks().size(), 6u);
  for (const Lease::Block& block : lease->blocks()) {
    EXPECT_GE(block.payload.data(), store->arena().data());
    EXPECT_LE(block.payload.data() + block.payload.size(), store->arena().data() + store->arena().size());
  }
  // The same block leased by another client is the same memory: both see one arena offset.
  const auto other = Connect();
  const auto same = testing::AcquireAll(other.get(), ns.id, Prompt(6));
  EXPECT_EQ(same->blocks()[3].payload.data() - other->arena().data(),
            lease->blocks()[3].payload.data() - store->arena().data());
}

TEST_F(RemoteStoreTest, FailsAtOnceWhenTheDaemonIsKilledAndHitsAgainAfterItsRestart) {
  DaemonProcess daemon = StartDaemon();
  const auto store = Connect();
  const Namespace ns = Open(store.get());
  ASSERT_TRUE(testing::PutPrompt(store.get(), ns.id, 6, 1, Durability::kDurable).ok());
  const auto lease = testing::AcquireAll(store.get(), ns.id, Prompt(6));
  ASSERT_TRUE(lease.ok());
  auto grant = store->Grant(ns.id);
  ASSERT_TRUE(grant.ok());

  // Outstanding calls: the daemon is stopped first, so that it cannot answer them.
  daemon.Pause();
  std::vector<std::unique_ptr<absl::Notification>> failed;
  std::atomic<int> unavailable = 0;
  for (int i = 0; i < 20; ++i) {
    failed.push_back(std::make_unique<absl::Notification>());
    store->Match(ns.id, Prompt(6), {}, [&, at = failed.back().get()](const absl::StatusOr<PrefixMatch>& match) {
      if (absl::IsUnavailable(match.status())) ++unavailable;
      at->Notify();
    });
  }
  daemon.Kill();
  for (const auto& each : failed) EXPECT_TRUE(each->WaitForNotificationWithTimeout(absl::Seconds(20)));
  EXPECT_EQ(unavailable, 20);
  ASSERT_TRUE(AwaitConnected(*store, false));

  EXPECT_TRUE(absl::IsUnavailable(store->Stats().status()));
  EXPECT_TRUE(absl::IsUnavailable(store->Grant(ns.id).status()));
  EXPECT_TRUE(absl::IsUnavailable(testing::AcquireAll(store.get(), ns.id, Prompt(6)).status()));
  for (std::size_t i = 0; i < 6; ++i) EXPECT_TRUE(testing::PayloadIs(lease->blocks()[i].payload, 1, i));

  daemon = StartDaemon();  // over the stale socket
  ASSERT_TRUE(AwaitConnected(*store, true));
  const auto again = testing::AcquireAll(store.get(), ns.id, Prompt(6));
  ASSERT_TRUE(again.ok()) << again.status();
  ASSERT_EQ(again->blocks().size(), 6u);
  for (std::size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(again->blocks()[i].source, Tier::kNvme);
    EXPECT_TRUE(testing::PayloadIs(again->blocks()[i].payload, 1, i));
    EXPECT_TRUE(testing::PayloadIs(lease->blocks()[i].payload, 1, i)) << "a lease of the dead daemon";
  }
  // A slot of the lost connection still is memory, but can no longer be committed; a new one can.
  testing::FillPayload(grant->payload(), 2, 0);
  CommitRequest request{.ns = ns.id, .parent = ns.id, .tokens = Prompt(1, 2), .grant = std::move(*grant)};
  EXPECT_TRUE(absl::IsUnavailable(
      Await<BlockKey>([&](Done<BlockKey> done) { store->Commit(std::move(request), {}, std::move(done)); }).status()));
  EXPECT_TRUE(testing::PutPrompt(store.get(), ns.id, 3, 2).ok());
  EXPECT_EQ(GoodHits(store.get(), ns.id, 3, 2), 3);
}

TEST_F(RemoteStoreTest, GivesUpOnAStuckDaemonInTimeAndKeepsNothingWhenItGoesOn) {
  DaemonProcess daemon = StartDaemon();
  const auto store = Connect();
  const Namespace ns = Open(store.get());
  ASSERT_TRUE(testing::PutPrompt(store.get(), ns.id, 4).ok());
  daemon.Pause();
  const CallOptions soon{.timeout = absl::Milliseconds(50), .cancel = {}};
  const auto late =
      Await<Lease>([&](Done<Lease> done) { store->Acquire(ns.id, Prompt(4), 100, soon, std::move(done)); });
  EXPECT_TRUE(absl::IsDeadlineExceeded(late.status())) << late.status();
  std::stop_source stop;
  absl::Notification cancelled;
  store->Acquire(ns.id, Prompt(4), 100, {.timeout = absl::InfiniteDuration(), .cancel = stop.get_token()},
                 [&](const absl::StatusOr<Lease>& lease) {
                   EXPECT_TRUE(absl::IsCancelled(lease.status())) << lease.status();
                   cancelled.Notify();
                 });
  stop.request_stop();
  EXPECT_TRUE(cancelled.WaitForNotificationWithTimeout(absl::Seconds(20)));
  daemon.Resume();
  // Both leases come, too late, and go back.
  absl::StatusOr<StoreStats> stats = store->Stats();
  for (int i = 0; i < 2000 && stats.ok() && stats->leased_blocks != 0; ++i) {
    absl::SleepFor(absl::Milliseconds(5));
    stats = store->Stats();
  }
  ASSERT_TRUE(stats.ok()) << stats.status();
  EXPECT_EQ(stats->leased_blocks, 0u);
  EXPECT_EQ(GoodHits(store.get(), ns.id, 4), 4);
}

TEST_F(RemoteStoreTest, CompletionsMayCallTheStoreButNotBlockOnIt) {
  const auto server = testing::LocalServer::Start(scratch_.path("s"), testing::SmallStore(scratch_.path("store")));
  ASSERT_TRUE(server.ok()) << server.status();
  const auto store = Connect();
  const Namespace ns = Open(store.get());
  ASSERT_TRUE(testing::PutPrompt(store.get(), ns.id, 3).ok());
  absl::Notification over;
  store->Match(ns.id, Prompt(3), {}, [&](const absl::StatusOr<PrefixMatch>& match) {
    EXPECT_EQ(match->blocks(), 3u);
    EXPECT_TRUE(absl::IsFailedPrecondition(store->Stats().status()));
    store->Acquire(ns.id, Prompt(3), match->blocks(), {}, [&](const absl::StatusOr<Lease>& lease) {
      EXPECT_EQ(lease->blocks().size(), 3u);
      over.Notify();
    });
  });
  EXPECT_TRUE(over.WaitForNotificationWithTimeout(absl::Seconds(60)));
}

TEST_F(RemoteStoreTest, ALeaseMayOutliveTheStoreAndHoldsTillItsEnd) {
  const auto server = testing::LocalServer::Start(scratch_.path("s"), testing::SmallStore(scratch_.path("store")));
  ASSERT_TRUE(server.ok()) << server.status();
  auto store = Connect();
  const Namespace ns = Open(store.get());
  ASSERT_TRUE(testing::PutPrompt(store.get(), ns.id, 4).ok());
  auto lease = testing::AcquireAll(store.get(), ns.id, Prompt(4));
  ASSERT_TRUE(lease.ok());
  store.reset();
  // Others fill DRAM several times over meanwhile.
  const auto other = Connect();
  for (TokenId seed = 2; seed < 40; ++seed) {
    while (true) {
      const absl::Status status = testing::PutPrompt(other.get(), ns.id, 32, seed);
      if (status.ok()) break;
      ASSERT_TRUE(absl::IsResourceExhausted(status)) << status;
      ASSERT_TRUE(AwaitStatus([&](DoneStatus done) { other->Flush({}, std::move(done)); }).ok());
    }
  }
  ASSERT_EQ(lease->blocks().size(), 4u);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_TRUE(testing::PayloadIs(lease->blocks()[i].payload, 1, i));
  EXPECT_EQ(server->server->stats().leased_blocks, 4u);
  *lease = Lease();
  for (int i = 0; i < 6000 && server->server->stats().leased_blocks != 0; ++i) absl::SleepFor(absl::Milliseconds(5));
  EXPECT_EQ(server->server->stats().leased_blocks, 0u);
}

TEST_F(RemoteStoreTest, FailsWhatIsOutstandingWhenItIsDestroyed) {
  DaemonProcess daemon = StartDaemon();
  auto store = Connect();
  const Namespace ns = Open(store.get());
  daemon.Pause();
  absl::Notification over;
  store->Match(ns.id, Prompt(3), {}, [&](const absl::StatusOr<PrefixMatch>& match) {
    EXPECT_TRUE(absl::IsCancelled(match.status())) << match.status();
    over.Notify();
  });
  store.reset();
  EXPECT_TRUE(over.HasBeenNotified());
}

TEST_F(RemoteStoreTest, RefusesMoreThanAFrameHolds) {
  const auto server = testing::LocalServer::Start(scratch_.path("s"), testing::SmallStore(scratch_.path("store")));
  ASSERT_TRUE(server.ok()) << server.status();
  const auto store = Connect();
  const Namespace ns = Open(store.get());
  const std::vector<TokenId> million(1'000'000, 5);
  EXPECT_EQ(testing::AcquireAll(store.get(), ns.id, million)->blocks().size(), 0u);
  const std::vector<TokenId> too_many(3'000'000, 5);
  EXPECT_TRUE(absl::IsInvalidArgument(testing::AcquireAll(store.get(), ns.id, too_many).status()));
}

}  // namespace
}  // namespace kvist
