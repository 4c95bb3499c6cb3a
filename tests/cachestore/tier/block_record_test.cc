#include "cachestore/tier/block_record.h"

#include <cstring>
#include <memory>
#include <numeric>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace kvist {
namespace {

constexpr RecordShape kShape{.block_tokens = 16, .layers = 3, .layer_bytes = 5000};

std::vector<TokenId> Tokens(std::size_t count = 16) {
  std::vector<TokenId> tokens(count);
  std::iota(tokens.begin(), tokens.end(), TokenId{7});
  return tokens;
}

RecordHeader Header() {
  return {.ns = {1, 2},
          .parent = {3, 4},
          .key = {5, 6},
          .shape = kShape,
          .extent = {.segment = 7, .generation = 8, .offset = 9},
          .expires_unix_s = 10};
}

// A sealed record over memory that was dirty before.
std::vector<std::byte> Sealed() {
  std::vector<std::byte> record(kShape.record_bytes(), std::byte{0xee});
  for (std::size_t i = 0; i < kShape.payload_bytes(); ++i) {
    record[kShape.header_bytes() + i] = static_cast<std::byte>(i * 31);
  }
  SealRecord(record, Header(), Tokens());
  return record;
}

TEST(BlockRecord, HeaderComesBack) {
  const auto record = Sealed();
  const auto header = ReadRecordHeader(record);
  ASSERT_TRUE(header.ok()) << header.status();
  EXPECT_EQ(header->ns, Header().ns);
  EXPECT_EQ(header->parent, Header().parent);
  EXPECT_EQ(header->key, Header().key);
  EXPECT_EQ(header->shape, kShape);
  EXPECT_EQ(header->extent, Header().extent);
  EXPECT_EQ(header->expires_unix_s, 10);
  EXPECT_TRUE(VerifyRecordPayload(record, kShape).ok());
  EXPECT_TRUE(RecordTokensEqual(record, Tokens()));
  EXPECT_EQ(RecordTokens(record).size(), 16u);
}

TEST(BlockRecord, PartsAreAligned) {
  for (const RecordShape& shape :
       {kShape, RecordShape{512, 4096, 1}, RecordShape{16, 1, 1}, RecordShape{64, 30, 49152}}) {
    EXPECT_EQ(shape.header_bytes() % kRecordAlignment, 0u);
    EXPECT_EQ(shape.record_bytes() % kRecordAlignment, 0u);
    EXPECT_GE(shape.record_bytes(), shape.header_bytes() + shape.payload_bytes());
  }
}

TEST(BlockRecord, StampChangesOnlyWhereItLies) {
  auto record = Sealed();
  StampRecord(record, {.segment = 70, .generation = 80, .offset = 90}, 100);
  const auto header = ReadRecordHeader(record);
  ASSERT_TRUE(header.ok()) << header.status();
  EXPECT_EQ(header->extent, (ExtentStamp{70, 80, 90}));
  EXPECT_EQ(header->expires_unix_s, 100);
  EXPECT_EQ(header->key, Header().key);
  EXPECT_TRUE(VerifyRecordPayload(record, kShape).ok());
  EXPECT_TRUE(RecordTokensEqual(record, Tokens()));
}

// One flipped bit anywhere in the header or the payload is seen, and never leads out of bounds.
TEST(BlockRecord, EveryFlippedBitIsSeen) {
  const auto good = Sealed();
  const std::size_t payload_end = kShape.header_bytes() + kShape.payload_bytes();
  for (std::size_t at = 0; at < payload_end; at += at < 512 ? 1 : 97) {
    for (int bit = 0; bit < 8; ++bit) {
      auto record = good;
      record[at] ^= static_cast<std::byte>(1 << bit);
      const auto header = ReadRecordHeader(record);
      if (at < kShape.header_bytes()) {
        EXPECT_TRUE(absl::IsDataLoss(header.status())) << at;
      } else {
        ASSERT_TRUE(header.ok());
        EXPECT_TRUE(absl::IsDataLoss(VerifyRecordPayload(record, kShape))) << at;
      }
    }
  }
}

TEST(BlockRecord, ATruncatedRecordIsDataLoss) {
  const auto record = Sealed();
  for (const std::size_t length :
       {std::size_t{0}, std::size_t{100}, kRecordAlignment - 1, kRecordAlignment, record.size() - 1}) {
    // An exact copy on the heap, so that reading past it is found by a sanitizer.
    const auto copy = std::make_unique<std::byte[]>(length + 1);
    std::memcpy(copy.get(), record.data(), length);
    EXPECT_TRUE(absl::IsDataLoss(ReadRecordHeader({copy.get(), length}).status())) << length;
  }
}

TEST(BlockRecord, OtherTokensAreNotEqual) {
  const auto record = Sealed();
  for (std::size_t i = 0; i < 16; ++i) {
    auto tokens = Tokens();
    ++tokens[i];
    EXPECT_FALSE(RecordTokensEqual(record, tokens));
  }
  EXPECT_FALSE(RecordTokensEqual(record, Tokens(15)));
  EXPECT_FALSE(RecordTokensEqual(record, Tokens(17)));
  EXPECT_FALSE(RecordTokensEqual(record, {}));
  EXPECT_FALSE(RecordTokensEqual({}, Tokens()));
}

}  // namespace
}  // namespace kvist
