// What the tests of the NVMe tier share: a directory of their own on a chosen file system, sealed records of known
// contents, and calls that wait.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/notification.h"
#include "cachestore/await.h"
#include "cachestore/io/clock.h"
#include "cachestore/io/fault_file_system.h"
#include "cachestore/io/file.h"
#include "cachestore/tier/nvme_core.h"
#include "cachestore/tier/nvme_tier.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace kvist {

inline constexpr RecordShape kTestShape{16, 4, 4096};
inline constexpr std::int64_t kTestExpiry = 1'900'000'000;

inline std::uint64_t Mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

inline NamespaceSpec TestSpec(const RecordShape& shape = kTestShape) {
  NamespaceSpec spec;
  spec.model = "test";
  spec.block_tokens = shape.block_tokens;
  spec.layers = shape.layers;
  spec.layer_bytes = shape.layer_bytes;
  return spec;
}

// Block `i` of a namespace, with contents that follow from its number.
struct TestBlock {
  NvmeBlock block;
  AlignedBuffer record;
  std::vector<TokenId> tokens;

  explicit TestBlock(std::uint64_t i, std::optional<std::uint64_t> parent = std::nullopt,
                     const RecordShape& shape = kTestShape, std::int64_t expires = kTestExpiry)
      : record(shape.record_bytes()) {
    block.ns = {7, 7};
    block.key = Key(i);
    block.parent = parent ? Key(*parent) : block.ns;
    block.record_bytes = shape.record_bytes();
    block.expires_unix_s = expires;
    tokens.resize(shape.block_tokens);
    std::iota(tokens.begin(), tokens.end(), static_cast<TokenId>(i * 1000));
    const std::span<std::byte> payload = record.bytes().subspan(shape.header_bytes());
    std::memset(payload.data(), 0, payload.size());
    for (std::size_t at = 0; at + 8 <= shape.payload_bytes(); at += 8) {
      const std::uint64_t word = Mix(i * 1'000'003 + at);
      std::memcpy(payload.data() + at, &word, 8);
    }
    RecordHeader header;
    header.ns = block.ns;
    header.parent = block.parent;
    header.key = block.key;
    header.shape = shape;
    header.expires_unix_s = expires;
    SealRecord(record.bytes(), header, tokens);
  }

  static BlockKey Key(std::uint64_t i) { return {Mix(i), Mix(i + 1'000'000)}; }
  static std::uint64_t RecordBytes() { return kTestShape.record_bytes(); }
};

inline absl::Status WriteBlock(NvmeTier& tier, TestBlock& block) {
  return AwaitStatus([&](DoneStatus done) { tier.Write(block.block, block.record.bytes(), std::move(done)); });
}

inline absl::Status ReadInto(NvmeTier& tier, const BlockKey& key, std::span<std::byte> record) {
  return AwaitStatus([&](DoneStatus done) { tier.Read(key, record, std::move(done)); });
}

inline absl::Status FlushTier(NvmeTier& tier) {
  return AwaitStatus([&](DoneStatus done) { tier.Flush(std::move(done)); });
}

// OK if block `i` is resident and exactly what it should be.
inline absl::Status CheckBlock(NvmeTier& tier, std::uint64_t i, std::optional<std::uint64_t> parent = std::nullopt,
                               const RecordShape& shape = kTestShape) {
  AlignedBuffer got(shape.record_bytes());
  if (absl::Status s = ReadInto(tier, TestBlock::Key(i), got.bytes()); !s.ok()) return s;
  const TestBlock want(i, parent, shape);
  if (!RecordTokensEqual(got.bytes(), want.tokens)) return absl::InternalError("WRONG TOKENS");
  if (std::memcmp(got.bytes().data() + shape.header_bytes(), want.record.bytes().data() + shape.header_bytes(),
                  shape.payload_bytes()) != 0) {
    return absl::InternalError("WRONG PAYLOAD");
  }
  return absl::OkStatus();
}

class NvmeFixture : public ::testing::Test {
 protected:
  // A child may choose tmpfs.
  explicit NvmeFixture(const std::string& root = ::testing::TempDir()) {
    std::string pattern = root + "/kvist-nvme-XXXXXX";
    root_ = ::mkdtemp(pattern.data());
    options_.directory = root_ + "/store";
    options_.segment_bytes = 10 * TestBlock::RecordBytes();
    options_.capacity_bytes = 10 * options_.segment_bytes;
    options_.clock = &clock_;
  }
  ~NvmeFixture() override {
    tier_.reset();
    std::error_code ignored;
    std::filesystem::remove_all(root_, ignored);
  }

  absl::Status TryOpen() {
    tier_.reset();
    absl::StatusOr<std::unique_ptr<NvmeTier>> tier = NvmeTier::Open(options_);
    if (!tier.ok()) return tier.status();
    tier_ = *std::move(tier);
    return absl::OkStatus();
  }
  void Open() {
    const absl::Status status = TryOpen();
    ASSERT_TRUE(status.ok()) << status;
  }
  void Close() { tier_.reset(); }

  absl::Status Write(std::uint64_t i, std::optional<std::uint64_t> parent = std::nullopt) {
    TestBlock block(i, parent);
    return WriteBlock(*tier_, block);
  }
  absl::Status Check(std::uint64_t i, std::optional<std::uint64_t> parent = std::nullopt) {
    return CheckBlock(*tier_, i, parent);
  }
  bool Resident(std::uint64_t i) const { return tier_->Find(TestBlock::Key(i)).has_value(); }

  std::vector<std::string> SegmentFiles() const {
    std::vector<std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator(options_.directory + "/segments")) {
      files.push_back(entry.path());
    }
    std::sort(files.begin(), files.end());
    return files;
  }
  std::uint64_t SegmentFileBytes() const {
    std::uint64_t bytes = 0;
    for (const std::string& file : SegmentFiles()) bytes += std::filesystem::file_size(file);
    return bytes;
  }
  static void FlipByte(const std::string& path, std::uint64_t offset) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(offset));
    const int byte = file.get();
    file.seekp(static_cast<std::streamoff>(offset));
    file.put(static_cast<char>(byte ^ 0x40));
    ASSERT_TRUE(file.good());
  }

  std::string root_;
  FakeClock clock_;
  NvmeTierOptions options_;
  std::unique_ptr<NvmeTier> tier_;
};

}  // namespace kvist
