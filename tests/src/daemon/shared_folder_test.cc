// Daemons with NVMe directories of their own, and one shared folder.
#include <filesystem>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "src/protocol/convert.h"
#include "tests/src/testing/blocks.h"
#include "tests/src/testing/connect.h"
#include "tests/src/testing/daemon_process.h"
#include "tests/src/testing/raw_client.h"
#include "tests/src/testing/scratch.h"

namespace kvist::daemon {
namespace {

using testing::DaemonProcess;
using ::testing::HasSubstr;

class SharedFolderDaemons : public ::testing::Test {
 protected:
  SharedFolderDaemons() { std::filesystem::create_directory(folder_); }

  DaemonProcess::Options Options(const std::string& name) const {
    return {.socket = scratch_.path(name + ".sock"),
            .directory = scratch_.path(name),
            .settings = {"shared.directory=" + folder_}};
  }
  // Until all that was put is in the folder; the daemon says so itself.
  static void AwaitWritten(PrefixStore* store, std::uint64_t blocks) {
    while (store->Stats()->shared.written_blocks < blocks) absl::SleepFor(absl::Milliseconds(1));
  }

  testing::Scratch scratch_;
  const std::string folder_ = scratch_.path("folder");
};

TEST_F(SharedFolderDaemons, OneHitsWhatAnotherStored) {
  auto first = DaemonProcess::Start(Options("a"));
  ASSERT_TRUE(first.ok()) << first.status();
  auto second = DaemonProcess::Start(Options("b"));
  ASSERT_TRUE(second.ok()) << second.status();
  const auto a = testing::Connect(Options("a").socket);
  const auto b = testing::Connect(Options("b").socket);
  const auto ns = a->OpenNamespace(testing::SmallSpec(), {});
  ASSERT_TRUE(ns.ok()) << ns.status();
  EXPECT_EQ(b->OpenNamespace(testing::SmallSpec(), {})->id, ns->id);
  ASSERT_TRUE(testing::PutPrompt(a.get(), ns->id, 40).ok());
  AwaitWritten(a.get(), 40);

  const auto lease = testing::AcquireAll(b.get(), ns->id, testing::Prompt(40));
  ASSERT_TRUE(lease.ok()) << lease.status();
  ASSERT_EQ(lease->blocks().size(), 40u);
  for (std::size_t i = 0; i < 40; ++i) {
    EXPECT_EQ(lease->blocks()[i].source, Tier::kShared);
    EXPECT_TRUE(testing::PayloadIs(lease->blocks()[i].payload, 1, i)) << i;
  }
  const auto stats = b->Stats();
  EXPECT_TRUE(stats->shared.configured && stats->shared.available);
  EXPECT_EQ(stats->shared.hit_blocks, 40u);
  EXPECT_EQ(testing::GoodHits(b.get(), ns->id, 40), 40) << "and from its own DRAM after that";
  EXPECT_EQ(b->Stats()->shared.hit_blocks, 40u);
}

TEST_F(SharedFolderDaemons, AStoppedDaemonsBlocksAreThereForANewOne) {
  NamespaceId id;
  {
    auto first = DaemonProcess::Start(Options("a"));
    ASSERT_TRUE(first.ok()) << first.status();
    const auto a = testing::Connect(Options("a").socket);
    id = a->OpenNamespace(testing::SmallSpec(), {})->id;
    ASSERT_TRUE(testing::PutPrompt(a.get(), id, 40).ok());
    EXPECT_EQ(first->Terminate(), 0) << first->Log();
  }
  std::filesystem::remove_all(Options("a").directory);
  auto second = DaemonProcess::Start(Options("b"));
  ASSERT_TRUE(second.ok()) << second.status();
  const auto b = testing::Connect(Options("b").socket);
  EXPECT_EQ(b->OpenNamespace(testing::SmallSpec(), {})->id, id);
  EXPECT_EQ(testing::GoodHits(b.get(), id, 40), 40);
  EXPECT_EQ(b->Stats()->shared.hit_blocks, 40u);
}

TEST_F(SharedFolderDaemons, WhatAKilledDaemonWroteIsWhole) {
  auto first = DaemonProcess::Start(Options("a"));
  ASSERT_TRUE(first.ok()) << first.status();
  const auto a = testing::Connect(Options("a").socket);
  const NamespaceId id = a->OpenNamespace(testing::SmallSpec(), {})->id;
  ASSERT_TRUE(testing::PutPrompt(a.get(), id, 40).ok());
  AwaitWritten(a.get(), 5);  // in the middle of it, most likely
  first->Kill();
  auto second = DaemonProcess::Start(Options("b"));
  ASSERT_TRUE(second.ok()) << second.status();
  const auto b = testing::Connect(Options("b").socket);
  ASSERT_TRUE(b->OpenNamespace(testing::SmallSpec(), {}).ok());
  // Four are written at a time, so at most three of the first five were not among the five.
  EXPECT_GE(testing::GoodHits(b.get(), id, 40), 2);
  EXPECT_EQ(b->Stats()->corrupt_blocks, 0u);
}

TEST_F(SharedFolderDaemons, AStoreOfItsOwnIsRefusedWithARemedy) {
  auto plain = Options("old");
  plain.settings.clear();
  EXPECT_EQ(DaemonProcess::Start(plain)->Terminate(), 0);
  auto first = DaemonProcess::Start(Options("a"));
  ASSERT_TRUE(first.ok()) << first.status();
  DaemonProcess old = DaemonProcess::Spawn(Options("old"));
  EXPECT_EQ(old.WaitExit(), 1);
  EXPECT_THAT(old.Log(), HasSubstr("give the store an empty directory"));
}

TEST_F(SharedFolderDaemons, AClientThatDoesNotKnowTheTierIsToldOfTheLastItKnows) {
  auto first = DaemonProcess::Start(Options("a"));
  ASSERT_TRUE(first.ok()) << first.status();
  const auto a = testing::Connect(Options("a").socket);
  const auto ns = a->OpenNamespace(testing::SmallSpec(), {});
  ASSERT_TRUE(testing::PutPrompt(a.get(), ns->id, 4).ok());
  AwaitWritten(a.get(), 4);
  auto second = DaemonProcess::Start(Options("b"));
  ASSERT_TRUE(second.ok()) << second.status();
  const auto b = testing::Connect(Options("b").socket);
  ASSERT_TRUE(b->OpenNamespace(testing::SmallSpec(), {}).ok());
  const auto match =
      Await<PrefixMatch>([&](Done<PrefixMatch> done) { b->Match(ns->id, testing::Prompt(4), {}, std::move(done)); });
  ASSERT_TRUE(match.ok());
  EXPECT_THAT(match->tiers, ::testing::ElementsAre(Tier::kShared, Tier::kShared, Tier::kShared, Tier::kShared));

  testing::RawClient old(Options("b").socket);
  ASSERT_TRUE(old.SendHello());  // says nothing of tiers
  ASSERT_TRUE(old.Read().has_value());
  v1::Request request;
  request.set_id(2);
  protocol::ToWire(ns->id, request.mutable_match()->mutable_ns());
  request.mutable_match()->set_tokens(protocol::TokensToWire(testing::Prompt(4)));
  ASSERT_TRUE(old.SendRequest(request));
  const auto reply = old.Read();
  ASSERT_TRUE(reply.has_value());
  EXPECT_EQ(reply->match().tiers(), std::string(4, static_cast<char>(v1::TIER_NVME)));
}

}  // namespace
}  // namespace kvist::daemon
