// D1: same prompt, other salt, still shared: an isolation field dropped on the way to the store. Here the way is the
// daemon's socket; every field that isolates must survive it, in DRAM and, after a restart, on NVMe.
#include <functional>

#include "gmock/gmock.h"
#include "tests/src/testing/blocks.h"
#include "tests/src/testing/connect.h"
#include "tests/src/testing/daemon_process.h"
#include "tests/src/testing/scratch.h"

namespace kvist {
namespace {

TEST(D01SaltThroughDaemon, AnotherSaltNeverHitsInDramNorAfterARestart) {
  const testing::Scratch scratch;
  const testing::DaemonProcess::Options options{.socket = scratch.path("s"), .directory = scratch.path("store")};
  const NamespaceSpec a = testing::SmallSpec("a");
  const std::vector<std::function<void(NamespaceSpec&)>> changes = {
      [](NamespaceSpec& spec) { spec.salt = "b"; },       [](NamespaceSpec& spec) { spec.salt = ""; },
      [](NamespaceSpec& spec) { spec.tenant = "other"; }, [](NamespaceSpec& spec) { spec.adapter = "lora"; },
      [](NamespaceSpec& spec) { spec.media = "image"; },  [](NamespaceSpec& spec) { spec.model = "other"; },
      [](NamespaceSpec& spec) { spec.layout = "other"; }, [](NamespaceSpec& spec) { spec.positional = "other"; }};
  for (const bool restarted : {false, true}) {
    auto daemon = testing::DaemonProcess::Start(options);
    ASSERT_TRUE(daemon.ok()) << daemon.status();
    const auto writer = testing::Connect(options.socket);
    const auto ns = writer->OpenNamespace(a, {});
    ASSERT_TRUE(ns.ok()) << ns.status();
    if (!restarted) {
      ASSERT_TRUE(testing::PutPrompt(writer.get(), ns->id, 8, 1, Durability::kDurable).ok());
    }
    const auto reader = testing::Connect(options.socket);
    for (std::size_t i = 0; i < changes.size(); ++i) {
      NamespaceSpec spec = a;
      changes[i](spec);
      const auto other = reader->OpenNamespace(spec, {});
      ASSERT_TRUE(other.ok()) << other.status();
      EXPECT_EQ(testing::GoodHits(reader.get(), other->id, 8), 0) << "change " << i << " restarted " << restarted;
    }
    EXPECT_EQ(testing::GoodHits(reader.get(), reader->OpenNamespace(a, {})->id, 8), 8);
    if (!restarted) daemon->Kill();
  }
}

}  // namespace
}  // namespace kvist
