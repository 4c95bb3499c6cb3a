// Stores that format 1 wrote: data/format1.tar.gz holds one as the last program of that format left it, with chains of
// four blocks (TestChain(7, 4)) of the tenants "kept" (ttl 100 h), "pinned" (pinned), and "dropped" (dropped).
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include "cachestore/io/fault_file_system.h"
#include "cachestore/local_store.h"
#include "tests/conformance/test_chain.h"

namespace kvist {
namespace {

constexpr std::size_t kBlocks = 4;

NamespaceSpec SpecOf(const std::string& tenant) {
  NamespaceSpec spec = TestSpec();
  spec.tenant = tenant;
  spec.layers = 2;
  spec.layer_bytes = 512;
  return spec;
}

class Format1 : public ::testing::Test {
 protected:
  Format1() {
    const std::string command = "tar -xzf " FORMAT1_ARCHIVE " -C " + directory_.path();
    EXPECT_EQ(std::system(command.c_str()), 0) << command;
  }
  std::string store() const { return directory_.path() + "/store"; }
  absl::StatusOr<std::unique_ptr<LocalStore>> Open() {
    LocalStoreOptions options;
    options.nvme.directory = store();
    options.nvme.segment_bytes = 64 << 10;
    options.nvme.capacity_bytes = 8 * options.nvme.segment_bytes;
    options.nvme.file_system = &faults_;
    options.dram_bytes = 1 << 20;
    options.clock = &clock_;
    return LocalStore::Open(options);
  }
  std::string Format() const {
    std::ifstream in(store() + "/FORMAT");
    std::string line;
    std::getline(in, line);
    return line;
  }
  static void ExpectAllThere(LocalStore& store) {
    for (const std::string tenant : {"kept", "pinned", "dropped"}) {
      const Namespace ns = *store.OpenNamespace(SpecOf(tenant), {});
      const auto tokens = TestChain(7, kBlocks);
      const auto lease = AcquireNow(store, ns, tokens);
      ASSERT_TRUE(lease.ok()) << lease.status();
      EXPECT_EQ(lease->blocks().size(), tenant == "dropped" ? 0 : kBlocks) << tenant;
      EXPECT_TRUE(LeaseIsExact(*lease, ns, tokens));
    }
  }

  TestDirectory directory_;
  std::unique_ptr<FileSystem> posix_ = NewPosixFileSystem();
  FaultFileSystem faults_{posix_.get(), 1};
  FakeClock clock_;
};

TEST_F(Format1, IsUpgradedWithAllItHolds) {
  ASSERT_EQ(Format(), "kvist store, format 1");
  for (int opening = 0; opening < 2; ++opening) {
    auto opened = Open();
    ASSERT_TRUE(opened.ok()) << opened.status();
    EXPECT_EQ(Format(), "kvist store, format 2");
    ExpectAllThere(**opened);
    EXPECT_EQ((*opened)->Stats()->namespaces, 3u);
  }
  std::set<std::string> names;
  for (const auto& e : std::filesystem::directory_iterator(store())) names.insert(e.path().filename());
  EXPECT_EQ(names, (std::set<std::string>{"CLEAN", "FORMAT", "LOCK", "REMOVALS", "SECRET", "index", "namespaces",
                                          "segments"}));
  // Pins and times to live came along.
  clock_.Advance(absl::Hours(99));
  auto opened = Open();
  ASSERT_TRUE(opened.ok()) << opened.status();
  ExpectAllThere(**opened);
}

TEST_F(Format1, AnUpgradeThatFailsAtAnyStepLosesNothing) {
  std::size_t failures = 0;
  for (const FaultOp op : {FaultOp::kRename, FaultOp::kSyncDirectory, FaultOp::kSyncData, FaultOp::kWrite,
                           FaultOp::kOpen, FaultOp::kCreateDirectory}) {
    for (std::uint64_t step = 0;; ++step) {
      SCOPED_TRACE(testing::Message() << "op " << static_cast<int>(op) << " step " << step);
      std::filesystem::remove_all(store());
      const std::string command = "tar -xzf " FORMAT1_ARCHIVE " -C " + directory_.path();
      ASSERT_EQ(std::system(command.c_str()), 0);
      const std::uint64_t before = faults_.fired();
      faults_.Add({.op = op, .skip = step});
      auto opened = Open();
      faults_.Clear();
      if (faults_.fired() == before) break;
      if (!opened.ok()) {
        ++failures;
        opened = Open();
      }
      ASSERT_TRUE(opened.ok()) << opened.status();
      ExpectAllThere(**opened);
      if (HasFailure() || step > 100) return;
    }
  }
  EXPECT_GT(failures, 15u);
}

}  // namespace
}  // namespace kvist
