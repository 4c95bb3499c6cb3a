// Flush, while blocks leave the store.
#include "absl/synchronization/notification.h"
#include "cachestore/io/clock.h"
#include "cachestore/local_store.h"
#include "tests/cachestore/shared/stalled_file_system.h"
#include "tests/conformance/test_chain.h"

namespace kvist {
namespace {

// A block under way to the device whose parent expires meanwhile is out of reach: no fault of the flush that waits.
TEST(Flush, IsNotFailedByABlockWhoseParentExpired) {
  TestDirectory directory(kMemoryRoot);
  StalledFileSystem disk;
  FakeClock clock;
  LocalStoreOptions options;
  options.nvme.directory = directory.path() + "/store";
  options.nvme.capacity_bytes = 16 << 20;
  options.nvme.segment_bytes = 2 << 20;
  options.nvme.file_system = &disk;
  options.dram_bytes = 4 << 20;
  options.clock = &clock;
  options.ttl = absl::Hours(72);
  auto store = LocalStore::Open(options);
  ASSERT_TRUE(store.ok()) << store.status();
  const Namespace ns = *(*store)->OpenNamespace(TestSpec(), {});
  const auto tokens = TestChain(1, 2);
  const auto parent = CommitBlock(**store, ns, ns.id, tokens, 0, Durability::kDurable);
  ASSERT_TRUE(parent.ok()) << parent.status();
  clock.Advance(absl::Hours(60));
  disk.Stall("seg-");
  ASSERT_TRUE(CommitBlock(**store, ns, *parent, tokens, 1, Durability::kMemory).ok());
  disk.AwaitStuck(1);
  clock.Advance(absl::Hours(60));
  EXPECT_TRUE((*store)->Sweep().ok());
  EXPECT_EQ(MatchedBlocks(**store, ns, tokens), 0u);
  absl::Notification flushed;
  absl::Status status;
  (*store)->Flush({}, [&](absl::Status s) {
    status = std::move(s);
    flushed.Notify();
  });
  disk.Release();
  flushed.WaitForNotification();
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ((*store)->Stats()->nvme.blocks, 0u);
}

}  // namespace
}  // namespace kvist
