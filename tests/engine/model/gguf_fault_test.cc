// Files that lie about themselves: each must be refused with the fault and its place, in bounded memory.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <string_view>

#include "engine/model/gguf.h"
#include "tests/engine/tiny_gguf.h"

namespace kvist::engine {
namespace {

using ::testing::HasSubstr;

constexpr std::uint64_t kHuge = ~std::uint64_t{0};

class GgufFaultTest : public ::testing::Test {
 protected:
  ~GgufFaultTest() override { std::remove(path_.c_str()); }
  absl::Status OpenBytes(std::string_view bytes) {
    EXPECT_TRUE(WriteWholeFile(path_, bytes).ok());
    return GgufFile::Open(path_).status();
  }
  // Refused as InvalidArgument, naming the file and `fault`.
  void ExpectRefused(std::string_view bytes, const std::string& fault) {
    const absl::Status status = OpenBytes(bytes);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(path_));
    EXPECT_THAT(std::string(status.message()), HasSubstr("byte "));
    EXPECT_THAT(std::string(status.message()), HasSubstr(fault));
  }
  const std::string path_ = fmt::format("{}/gguf_fault_test_{}.gguf", ::testing::TempDir(), getpid());
};

std::string Header(std::uint32_t version, std::uint64_t tensors, std::uint64_t keys) {
  return "GGUF" + LittleEndian(version) + LittleEndian(tensors) + LittleEndian(keys);
}

TEST_F(GgufFaultTest, RefusesWhatIsNotARegularFile) {
  EXPECT_EQ(GgufFile::Open(path_ + ".absent").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(GgufFile::Open(::testing::TempDir()).status().code(), absl::StatusCode::kInvalidArgument);
  const std::string fifo = path_ + ".fifo";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_EQ(GgufFile::Open(fifo).status().code(), absl::StatusCode::kInvalidArgument);  // and does not hang
  std::remove(fifo.c_str());
  ExpectRefused("", "the file is empty");
}

TEST_F(GgufFaultTest, RefusesWrongMagicAndVersions) {
  ExpectRefused("PK\x03\x04 and much more that is not a model", "not a GGUF file");
  ExpectRefused(Header(1, 0, 0), "GGUF version 1 is not supported");
  ExpectRefused(Header(4, 0, 0), "GGUF version 4 is not supported");
  ExpectRefused(Header(0, 0, 0), "GGUF version 0 is not supported");
  ExpectRefused(Header(0x03000000, 0, 0), "big-endian");
}

TEST_F(GgufFaultTest, RefusesCountsTheFileCannotHold) {
  for (const std::uint64_t count : {std::uint64_t{1}, std::uint64_t{1} << 32, kHuge}) {
    ExpectRefused(Header(3, count, 0), "tensor count");
    ExpectRefused(Header(3, 0, count), "metadata count");
  }
  ExpectRefused(Header(3, 0, 70'000) + std::string(2'000'000, '\0'), "metadata count");
}

TEST_F(GgufFaultTest, RefusesTruncationAtEveryByteOfTheHeader) {
  GgufWriter writer = TinyGgufMetadata({});
  writer.AddTensor("a", {32, 2}, 8, std::string(68, 'q'));
  const std::string bytes = writer.Build();
  ASSERT_TRUE(OpenBytes(bytes).ok());
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    const absl::Status status = OpenBytes(std::string_view(bytes).substr(0, length));
    ASSERT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << "of " << length << " bytes: " << status;
    ASSERT_THAT(std::string(status.message()), HasSubstr("byte ")) << length;
  }
}

TEST_F(GgufFaultTest, RefusesStringLengthsPastTheFile) {
  for (const std::uint64_t length : {std::uint64_t{6}, std::uint64_t{1} << 20, kHuge >> 1, kHuge}) {
    GgufWriter value;
    value.AddRaw("name", 8, LittleEndian(length) + "short");
    ExpectRefused(value.Build().substr(0, value.HeaderBytes()), "length of name");
    ExpectRefused(Header(3, 0, 1) + LittleEndian(length) + "short", "length of metadata key 0");
    if (length == 6) continue;  // fits into the 24 bytes a tensor's record needs at least
    ExpectRefused(Header(3, 1, 0) + LittleEndian(length) + std::string(24, 'x'), "length of the name of tensor 0");
  }
}

TEST_F(GgufFaultTest, RefusesArraysTheFileCannotHold) {
  for (const std::uint32_t type : {0u, 4u, 6u, 7u, 8u, 9u, 12u}) {
    for (const std::uint64_t count : {std::uint64_t{100}, std::uint64_t{1} << 33, kHuge}) {
      GgufWriter writer;
      writer.AddRaw("list", 9, LittleEndian(type) + LittleEndian(count) + "0123456789");
      ExpectRefused(writer.Build().substr(0, writer.HeaderBytes()), "\"list\" claims");
    }
  }
  GgufWriter unknown;
  unknown.AddRaw("list", 9, LittleEndian(13u) + LittleEndian(std::uint64_t{0}));
  ExpectRefused(unknown.Build(), "array of unknown value type 13");
  GgufWriter wide;
  wide.AddRaw("list", 9, LittleEndian(10u) + LittleEndian(std::uint64_t{1}) + LittleEndian(kHuge));
  ExpectRefused(wide.Build(), "above the largest int64");
}

TEST_F(GgufFaultTest, RefusesArraysNestedWithoutEnd) {
  std::string value;
  for (int depth = 0; depth < 100'000; ++depth) value += LittleEndian(9u) + LittleEndian(std::uint64_t{1});
  GgufWriter writer;
  writer.AddRaw("deep", 9, value);
  ExpectRefused(writer.Build(), "nests arrays deeper than");
}

TEST_F(GgufFaultTest, RefusesBadValuesAndKeys) {
  GgufWriter unknown;
  unknown.AddRaw("x", 13, "data");
  ExpectRefused(unknown.Build(), "unknown value type 13");
  GgufWriter boolean;
  boolean.AddRaw("flag", 7, "\x02");
  ExpectRefused(boolean.Build(), "bool of value 2");
  GgufWriter twice;
  twice.AddU32("x", 1);
  twice.AddU32("x", 2);
  ExpectRefused(twice.Build(), "\"x\" stands twice");
  GgufWriter nameless;
  nameless.AddU32("", 1);
  ExpectRefused(nameless.Build(), "is empty");
}

TEST_F(GgufFaultTest, RefusesBadAlignment) {
  for (const std::size_t alignment : {0u, 1u, 4u, 24u, 33u, 1u << 30}) {
    GgufWriter writer;
    writer.AddU32("general.alignment", static_cast<std::uint32_t>(alignment));
    writer.AddTensor("a", {1}, 0, "abcd");
    ExpectRefused(writer.Build(), "general.alignment");
  }
  GgufWriter text;
  text.AddString("general.alignment", "32");
  ExpectRefused(text.Build(), "general.alignment");
}

TEST_F(GgufFaultTest, RefusesImpossibleShapes) {
  const auto one = [](const std::vector<std::uint64_t>& dims, std::uint32_t type) {
    GgufWriter writer;
    writer.AddTensor("w", dims, type, std::string(256, 'x'));
    return writer.Build();
  };
  ExpectRefused(one({}, 0), "\"w\" has 0 dimensions");
  ExpectRefused(one({1, 1, 1, 1, 1}, 0), "\"w\" has 5 dimensions");
  ExpectRefused(one({4, 0}, 0), "dimension 1 of tensor \"w\" is zero");
  ExpectRefused(one({std::uint64_t{1} << 32, std::uint64_t{1} << 32}, 0), "multiply past 2^64");
  ExpectRefused(one({kHuge, kHuge, kHuge, kHuge}, 0), "multiply past 2^64");
  ExpectRefused(one({std::uint64_t{1} << 63, 1}, 0), "past 2^64 bytes");
  ExpectRefused(one({33, 2}, 8), "not a multiple of Q8_0's block of 32");
  ExpectRefused(one({65}, 0), "ends past the end of the file");  // 260 bytes
}

TEST_F(GgufFaultTest, RefusesTensorTypesItDoesNotKnowByName) {
  GgufWriter known;
  known.AddTensor("blk.7.attn_q.weight", {256}, 11, std::string(110, 'x'));
  ExpectRefused(known.Build(), "tensor \"blk.7.attn_q.weight\" has type Q3_K (11), which is not supported");
  GgufWriter unknown;
  unknown.AddTensor("w", {256}, 77, std::string(110, 'x'));
  ExpectRefused(unknown.Build(), "(77), which is not supported");
}

TEST_F(GgufFaultTest, RefusesOffsetsPastTheFileAndUnalignedOnes) {
  for (const std::uint64_t offset : {std::uint64_t{32}, std::uint64_t{1} << 40, kHuge & ~std::uint64_t{31}}) {
    GgufWriter writer;
    writer.AddTensor("w", {64}, 0, std::string(256, 'x'));
    writer.OverrideOffset(offset);
    ExpectRefused(writer.Build(), "ends past the end of the file");
  }
  GgufWriter unaligned;
  unaligned.AddTensor("w", {1}, 0, std::string(64, 'x'));
  unaligned.OverrideOffset(4);
  ExpectRefused(unaligned.Build(), "not a multiple of the alignment 32");
}

TEST_F(GgufFaultTest, RefusesDuplicateAndBadTensorNames) {
  GgufWriter twice;
  twice.AddTensor("w", {1}, 0, "abcd");
  twice.AddTensor("w", {1}, 0, "abcd");
  ExpectRefused(twice.Build(), "tensor \"w\" stands twice");
  GgufWriter nameless;
  nameless.AddTensor("", {1}, 0, "abcd");
  ExpectRefused(nameless.Build(), "has no name");
  GgufWriter longer;
  longer.AddTensor(std::string(65, 'n'), {1}, 0, "abcd");
  ExpectRefused(longer.Build(), "65 bytes, more than the 64 allowed");
}

// Files of many megabytes that claim much must not make the reader take many times their size.
TEST_F(GgufFaultTest, MemoryStaysBoundedForHungryFiles) {
  const auto peak_kib = [] {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
  };
  constexpr std::uint64_t kArrays = 4'000'000;  // empty nested arrays: 12 bytes each in the file, far more in memory
  std::string value = LittleEndian(9u) + LittleEndian(kArrays);
  for (std::uint64_t i = 0; i < kArrays; ++i) value += LittleEndian(8u) + LittleEndian(std::uint64_t{0});
  GgufWriter writer;
  writer.AddRaw("hungry", 9, value);
  const std::string bytes = writer.Build();
  const auto before = peak_kib();
  ExpectRefused(bytes, "takes more than");
  constexpr long kAllowedKib = 1024 * 1024;  // the 512 MiB budget, allocator overhead and sanitizers' shadow
  EXPECT_LT(peak_kib() - before, kAllowedKib);
}

// Every byte of a small file's header, changed to telling values, either loads or is refused: never a crash.
TEST_F(GgufFaultTest, SurvivesEveryHeaderByteChanged) {
  GgufWriter writer;
  writer.AddU32("llama.block_count", 2);
  writer.AddStrings("tokens", {"a", "bc"});
  writer.AddTensor("a", {32, 2}, 8, std::string(68, 'q'));
  const std::string bytes = writer.Build();
  for (std::size_t i = 0; i < writer.HeaderBytes(); ++i) {
    for (const unsigned char value : {0x00, 0x01, 0x7f, 0x80, 0xff}) {
      std::string changed = bytes;
      changed[i] = static_cast<char>(value);
      const absl::Status status = OpenBytes(changed);
      ASSERT_TRUE(status.ok() || status.code() == absl::StatusCode::kInvalidArgument) << i << ": " << status;
    }
  }
}

}  // namespace
}  // namespace kvist::engine
