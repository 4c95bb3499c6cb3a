#include "engine/model/gguf.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "tests/engine/tiny_gguf.h"

namespace kvist::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class GgufFileTest : public ::testing::Test {
 protected:
  ~GgufFileTest() override { std::remove(path_.c_str()); }
  absl::StatusOr<std::unique_ptr<GgufFile>> OpenBytes(std::string_view bytes) {
    EXPECT_TRUE(WriteWholeFile(path_, bytes).ok());
    return GgufFile::Open(path_);
  }
  const std::string path_ = fmt::format("{}/gguf_test_{}.gguf", ::testing::TempDir(), getpid());
};

TEST_F(GgufFileTest, ReadsEveryMetadataType) {
  GgufWriter writer;
  writer.AddRaw("u8", 0, LittleEndian(std::uint8_t{255}));
  writer.AddRaw("i8", 1, LittleEndian(std::int8_t{-128}));
  writer.AddRaw("u16", 2, LittleEndian(std::uint16_t{65535}));
  writer.AddRaw("i16", 3, LittleEndian(std::int16_t{-2}));
  writer.AddRaw("u32", 4, LittleEndian(std::uint32_t{4000000000u}));
  writer.AddRaw("i32", 5, LittleEndian(std::int32_t{7}));
  writer.AddRaw("f32", 6, LittleEndian(0.5f));
  writer.AddRaw("bool", 7, std::string(1, '\x01'));
  writer.AddRaw("string", 8, GgufString("text"));
  writer.AddRaw("u64", 10, LittleEndian(~std::uint64_t{0}));
  writer.AddRaw("i64", 11, LittleEndian(std::int64_t{-5}));
  writer.AddRaw("f64", 12, LittleEndian(0.1));
  const auto file = OpenBytes(writer.Build());
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ((*file)->U64("u8").value(), 255u);
  EXPECT_EQ(std::get<std::int64_t>(*(*file)->Find("i8")), -128);
  EXPECT_EQ((*file)->U64("u16").value(), 65535u);
  EXPECT_EQ(std::get<std::int64_t>(*(*file)->Find("i16")), -2);
  EXPECT_EQ((*file)->U64("u32").value(), 4000000000u);
  EXPECT_EQ((*file)->U64("i32").value(), 7u);
  EXPECT_EQ((*file)->F64("f32").value(), 0.5);
  EXPECT_TRUE((*file)->Bool("bool").value());
  EXPECT_EQ((*file)->String("string").value(), "text");
  EXPECT_EQ((*file)->U64("u64").value(), ~std::uint64_t{0});
  EXPECT_EQ(std::get<std::int64_t>(*(*file)->Find("i64")), -5);
  EXPECT_EQ((*file)->F64("f64").value(), 0.1);
}

TEST_F(GgufFileTest, ReadsArraysOfEveryKind) {
  GgufWriter writer;
  const auto array = [](std::uint32_t type, std::uint64_t count, const std::string& elements) {
    return LittleEndian(type) + LittleEndian(count) + elements;
  };
  writer.AddRaw("i16s", 9, array(3, 2, LittleEndian(std::int16_t{-1}) + LittleEndian(std::int16_t{300})));
  writer.AddRaw("u64s", 9, array(10, 1, LittleEndian(std::uint64_t{1} << 62)));
  writer.AddRaw("bools", 9, array(7, 2, std::string("\x01\x00", 2)));
  writer.AddRaw("floats", 9, array(6, 2, LittleEndian(1.5f) + LittleEndian(-2.0f)));
  writer.AddStrings("strings", {"a", "", "c"});
  writer.AddRaw("empty", 9, array(8, 0, ""));
  writer.AddRaw("nested", 9, array(9, 2, array(5, 1, LittleEndian(std::int32_t{9})) + array(8, 1, GgufString("deep"))));
  const auto file = OpenBytes(writer.Build());
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_THAT((*file)->Array("i16s").value()->integers, ElementsAre(-1, 300));
  EXPECT_THAT((*file)->Array("u64s").value()->integers, ElementsAre(std::int64_t{1} << 62));
  EXPECT_THAT((*file)->Array("bools").value()->integers, ElementsAre(1, 0));
  EXPECT_THAT((*file)->Array("floats").value()->floats, ElementsAre(1.5, -2.0));
  EXPECT_THAT((*file)->Array("strings").value()->strings, ElementsAre("a", "", "c"));
  EXPECT_EQ((*file)->Array("empty").value()->size, 0u);
  const auto nested = (*file)->Array("nested").value();
  ASSERT_EQ(nested->nested.size(), 2u);
  EXPECT_THAT(std::get<std::shared_ptr<GgufArray>>(nested->nested[0])->integers, ElementsAre(9));
  EXPECT_THAT(std::get<std::shared_ptr<GgufArray>>(nested->nested[1])->strings, ElementsAre("deep"));
}

TEST_F(GgufFileTest, GettersNameTheKeyThatIsAbsentOrOfAnotherType) {
  GgufWriter writer;
  writer.AddString("text", "7");
  writer.AddRaw("negative", 5, LittleEndian(std::int32_t{-1}));
  const auto file = OpenBytes(writer.Build());
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ((*file)->U64("absent").status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string((*file)->U64("absent").status().message()), HasSubstr("\"absent\""));
  EXPECT_EQ((*file)->U64("text").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ((*file)->U64("negative").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ((*file)->F64("text").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ((*file)->Bool("text").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ((*file)->Array("text").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ((*file)->String("negative").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(GgufFileTest, FindsTensorsWithTheirBytes) {
  for (const std::uint32_t version : {2u, 3u}) {
    for (const std::size_t alignment : {8u, 32u, 4096u}) {
      GgufWriter writer(version, alignment);
      writer.AddTensor("a", {3}, 0, LittleEndian(1.0f) + LittleEndian(2.0f) + LittleEndian(3.0f));
      writer.AddTensor("b", {32, 2}, 8, std::string(68, 'q'));
      const auto file = OpenBytes(writer.Build());
      ASSERT_TRUE(file.ok()) << file.status();
      EXPECT_EQ((*file)->version(), version);
      const GgufTensor* a = (*file)->FindTensor("a");
      ASSERT_NE(a, nullptr);
      float last = 0;
      ASSERT_EQ(a->data.size(), 12u);
      std::memcpy(&last, a->data.data() + 8, 4);
      EXPECT_EQ(last, 3.0f);
      const GgufTensor* b = (*file)->FindTensor("b");
      ASSERT_NE(b, nullptr);
      EXPECT_EQ(b->type, kernels::TensorType::kQ8_0);
      EXPECT_THAT(b->dims, ElementsAre(32, 2));
      EXPECT_EQ(b->elements(), 64u);
      EXPECT_EQ(std::string(reinterpret_cast<const char*>(b->data.data()), b->data.size()), std::string(68, 'q'));
      EXPECT_EQ((*file)->FindTensor("c"), nullptr);
    }
  }
}

TEST_F(GgufFileTest, FingerprintChangesWithOneBitOfOneTensor) {
  const auto original = OpenBytes(TinyGgufBytes({}));
  ASSERT_TRUE(original.ok()) << original.status();
  const Digest128 first = (*original)->Fingerprint();
  EXPECT_EQ((*original)->Fingerprint(), first);
  const auto altered = OpenBytes(TinyGgufBytes({.altered_tensor = "blk.1.ffn_down.weight"}));
  ASSERT_TRUE(altered.ok()) << altered.status();
  EXPECT_NE((*altered)->Fingerprint(), first);
}

TEST_F(GgufFileTest, TinyModelsOfEveryTensorTypeOpen) {
  using kernels::TensorType;
  for (const TensorType type : {TensorType::kF32, TensorType::kF16, TensorType::kBF16, TensorType::kQ8_0,
                                TensorType::kQ4_0, TensorType::kQ4_1, TensorType::kQ4_K, TensorType::kQ6_K}) {
    const TinyGgufOptions options{.layers = 1, .head_dim = 64, .ffn = 256, .matrix_type = type};
    const auto file = OpenBytes(TinyGgufBytes(options));
    ASSERT_TRUE(file.ok()) << file.status();
    const GgufTensor* q = (*file)->FindTensor("blk.0.attn_q.weight");
    ASSERT_NE(q, nullptr);
    EXPECT_EQ(q->type, type);
  }
}

TEST_F(GgufFileTest, TinyModelsAreTheSameEveryTime) {
  EXPECT_EQ(TinyGgufBytes({}), TinyGgufBytes({}));
  EXPECT_NE(TinyGgufBytes({}), TinyGgufBytes({.seed = 2}));
}

}  // namespace
}  // namespace kvist::engine
