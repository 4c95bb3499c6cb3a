#include "cachestore/index/block_index.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace kvist {
namespace {

using ::testing::HasSubstr;

BlockEntry Entry(std::uint64_t i) {
  BlockEntry e;
  e.ns = {1, 2};
  e.parent = {i, i + 1};
  e.extent = {i + 2, i + 3, i * 4096};
  e.record_bytes = 8192;
  e.expires_unix_s = -static_cast<std::int64_t>(i);
  e.used = i + 5;
  e.pins = static_cast<std::uint32_t>(i + 6);
  return e;
}

class BlockIndexTest : public ::testing::Test {
 protected:
  BlockIndexTest() {
    std::string pattern = ::testing::TempDir() + "/kvist-index-XXXXXX";
    root_ = ::mkdtemp(pattern.data());
  }
  ~BlockIndexTest() override {
    index_.reset();
    std::filesystem::remove_all(root_);
  }
  absl::Status Open() {
    index_.reset();
    auto index = BlockIndex::Open({.directory = root_ + "/index"});
    if (index.ok()) index_ = *std::move(index);
    return index.status();
  }
  std::map<BlockKey, BlockEntry> Blocks() {
    std::map<BlockKey, BlockEntry> all;
    EXPECT_EQ(index_->ForEachBlock([&](const BlockKey& k, const BlockEntry& e) {
      all[k] = e;
      return true;
    }),
              absl::OkStatus());
    return all;
  }

  std::string root_;
  std::unique_ptr<BlockIndex> index_;
};

TEST_F(BlockIndexTest, KeepsWhatWasApplied) {
  ASSERT_EQ(Open(), absl::OkStatus());
  const KeyHasher::Secret secret = index_->secret();
  EXPECT_EQ(index_->newest_time(), absl::InfinitePast());
  NamespaceEntry ns;
  ns.spec.model = "m";
  ns.spec.layers = 3;
  ns.spec.layer_bytes = 100;
  ns.ttl = absl::Milliseconds(1500);
  IndexBatch batch;
  for (std::uint64_t i = 0; i < 100; ++i) batch.put_blocks.emplace_back(BlockKey{i, 9}, Entry(i));
  batch.put_namespaces.emplace_back(NamespaceId{1, 2}, ns);
  batch.put_segments.emplace_back(4, SegmentEntry{5, 6});
  batch.newest_time = absl::FromUnixMillis(1'700'000'000'123);
  ASSERT_EQ(index_->Apply(batch, IndexSync::kYes), absl::OkStatus());
  IndexBatch second;
  second.delete_blocks = {BlockKey{1, 9}, BlockKey{2, 9}};
  second.put_blocks.emplace_back(BlockKey{2, 9}, Entry(200));  // deletes come first
  ASSERT_EQ(index_->Apply(second, IndexSync::kYes), absl::OkStatus());

  ASSERT_EQ(Open(), absl::OkStatus());
  EXPECT_EQ(index_->secret(), secret);
  EXPECT_EQ(index_->newest_time(), absl::FromUnixMillis(1'700'000'000'123));
  const auto blocks = Blocks();
  EXPECT_EQ(blocks.size(), 99u);
  EXPECT_FALSE(blocks.contains(BlockKey{1, 9}));
  EXPECT_EQ(blocks.at(BlockKey{2, 9}), Entry(200));
  EXPECT_EQ(blocks.at(BlockKey{77, 9}), Entry(77));
  int namespaces = 0;
  EXPECT_EQ(index_->ForEachNamespace([&](const NamespaceId& id, const NamespaceEntry& e) {
    EXPECT_EQ(id, (NamespaceId{1, 2}));
    EXPECT_EQ(e, ns);
    ++namespaces;
  }),
            absl::OkStatus());
  EXPECT_EQ(namespaces, 1);
  int segments = 0;
  EXPECT_EQ(index_->ForEachSegment([&](std::uint64_t id, const SegmentEntry& e) {
    EXPECT_EQ(id, 4u);
    EXPECT_EQ(e, (SegmentEntry{5, 6}));
    ++segments;
  }),
            absl::OkStatus());
  EXPECT_EQ(segments, 1);
}

TEST_F(BlockIndexTest, SecretsAreRandomPerStore) {
  ASSERT_EQ(Open(), absl::OkStatus());
  const KeyHasher::Secret first = index_->secret();
  index_.reset();
  std::filesystem::remove_all(root_ + "/index");
  ASSERT_EQ(Open(), absl::OkStatus());
  EXPECT_NE(index_->secret(), first);
}

TEST_F(BlockIndexTest, ADamagedIndexIsAnErrorThatSaysHowToGoOn) {
  ASSERT_EQ(Open(), absl::OkStatus());
  index_.reset();
  for (const auto& e : std::filesystem::directory_iterator(root_ + "/index")) {
    if (e.path().filename().string().starts_with("MANIFEST")) std::ofstream(e.path()) << std::string(500, 'x');
  }
  const absl::Status status = Open();
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("--rebuild-index"));
}

TEST(IndexRecords, RejectsWhatIsCutOrOfAnotherVersion) {
  const std::string bytes = EncodeBlockEntry(Entry(3));
  ASSERT_TRUE(DecodeBlockEntry(bytes).ok());
  for (std::size_t n = 0; n < bytes.size(); ++n) EXPECT_FALSE(DecodeBlockEntry(bytes.substr(0, n)).ok()) << n;
  EXPECT_FALSE(DecodeBlockEntry(bytes + "x").ok());
  EXPECT_FALSE(DecodeBlockEntry("\x02" + bytes.substr(1)).ok());
  const std::string segment = EncodeSegmentEntry({1, 2});
  for (std::size_t n = 0; n < segment.size(); ++n) EXPECT_FALSE(DecodeSegmentEntry(segment.substr(0, n)).ok());
  NamespaceEntry ns;
  ns.spec.layers = 1;
  const std::string name = EncodeNamespaceEntry(ns);
  EXPECT_EQ(DecodeNamespaceEntry(name).value(), ns);
  for (std::size_t n = 0; n < name.size(); ++n) EXPECT_FALSE(DecodeNamespaceEntry(name.substr(0, n)).ok()) << n;
}

// The bytes of docs/format.md.
TEST(IndexRecords, HasTheDocumentedBytes) {
  BlockEntry e;
  e.ns = {0x0102030405060708, 0x1112131415161718};
  e.expires_unix_s = -1;
  e.pins = 0x21222324;
  const std::string bytes = EncodeBlockEntry(e);
  ASSERT_EQ(bytes.size(), 85u);
  EXPECT_EQ(bytes.substr(0, 17), std::string("\x01\x08\x07\x06\x05\x04\x03\x02\x01\x18\x17\x16\x15\x14\x13\x12\x11"));
  EXPECT_EQ(bytes.substr(65, 8), std::string(8, '\xff'));
  EXPECT_EQ(bytes.substr(81), "\x24\x23\x22\x21");
}

}  // namespace
}  // namespace kvist
