// What the tests of fsck share: a small store with several tenants, chains of known contents in it, and its files to
// damage.
#pragma once

#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "cachestore/fsck/fsck.h"
#include "cachestore/index/block_index.h"
#include "cachestore/local_store.h"
#include "cachestore/tier/store_files.h"
#include "tests/conformance/test_chain.h"

namespace kvist {

// 16-token blocks whose records take 8 KiB.
inline NamespaceSpec SmallSpec(const std::string& tenant) {
  NamespaceSpec spec = TestSpec();
  spec.tenant = tenant;
  spec.layers = 2;
  spec.layer_bytes = 1500;
  return spec;
}

class FsckFixture : public ::testing::Test {
 protected:
  static constexpr std::size_t kBlocks = 5;  // of each chain

  std::string store_path() const { return directory_.path() + "/store"; }
  std::string copy_path() const { return directory_.path() + "/copy"; }

  absl::StatusOr<std::unique_ptr<LocalStore>> TryOpen(const std::string& path) {
    LocalStoreOptions options;
    options.nvme.directory = path;
    options.nvme.segment_bytes = 128 << 10;
    options.nvme.capacity_bytes = segments_ * options.nvme.segment_bytes;
    options.dram_bytes = 1 << 20;
    options.clock = &clock_;
    return LocalStore::Open(options);
  }
  std::unique_ptr<LocalStore> Open(const std::string& path) {
    auto store = TryOpen(path);
    EXPECT_TRUE(store.ok()) << store.status();
    return store.ok() ? *std::move(store) : nullptr;
  }
  Namespace Ns(LocalStore& store, const std::string& tenant) {
    auto ns = store.OpenNamespace(SmallSpec(tenant), {});
    EXPECT_TRUE(ns.ok()) << ns.status();
    return ns.ok() ? *ns : Namespace{};
  }
  void Commit(LocalStore& store, const std::string& tenant, std::uint32_t seed) {
    const auto keys = CommitChain(store, Ns(store, tenant), TestChain(seed, kBlocks), Durability::kDurable);
    ASSERT_TRUE(keys.ok()) << keys.status();
  }
  // Blocks of that chain that are there, from its head on; each must be exact.
  std::size_t Hits(LocalStore& store, const std::string& tenant, std::uint32_t seed) {
    const Namespace ns = Ns(store, tenant);
    const auto tokens = TestChain(seed, kBlocks);
    const auto lease = AcquireNow(store, ns, tokens);
    EXPECT_TRUE(lease.ok()) << lease.status();
    if (!lease.ok()) return 0;
    EXPECT_TRUE(LeaseIsExact(*lease, ns, tokens));
    return lease->blocks().size();
  }

  static FsckReport Check(const std::string& path, bool repair = false, bool rebuild = false) {
    FsckOptions options;
    options.directory = path;
    options.repair = repair;
    options.rebuild_index = rebuild;
    const auto report = Fsck(options);
    EXPECT_TRUE(report.ok()) << report.status();
    return report.ok() ? *report : FsckReport{};
  }
  static std::string Show(const FsckReport& report) {
    std::string text;
    for (const auto& p : report.problems) text += p.path + ": " + p.what + "\n";
    for (const auto& note : report.notes) text += "note: " + note + "\n";
    return text;
  }

  // What the index holds, by key.
  static std::map<BlockKey, BlockEntry> IndexOf(const std::string& path) {
    std::map<BlockKey, BlockEntry> blocks;
    auto index = BlockIndex::OpenToCheck({.directory = path + "/index"});
    EXPECT_TRUE(index.ok()) << index.status();
    if (!index.ok()) return blocks;
    EXPECT_EQ((*index)->ForEachBlock([&](const BlockKey& k, const BlockEntry& e) {
      blocks[k] = e;
      return true;
    }),
              absl::OkStatus());
    return blocks;
  }

  void CopyStore() {
    std::filesystem::remove_all(copy_path());
    std::filesystem::copy(store_path(), copy_path(), std::filesystem::copy_options::recursive);
  }
  static void FlipBit(const std::string& path, std::uint64_t offset, unsigned bit) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(offset));
    const int byte = file.get();
    file.seekp(static_cast<std::streamoff>(offset));
    file.put(static_cast<char>(byte ^ (1 << bit)));
    ASSERT_TRUE(file.good()) << path << " " << offset;
  }

  TestDirectory directory_{kMemoryRoot};
  FakeClock clock_;
  std::uint64_t segments_ = 16;
};

}  // namespace kvist
