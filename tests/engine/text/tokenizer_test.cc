#include "engine/text/tokenizer.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/engine/tiny_gguf.h"

namespace kvist::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class TokenizerTest : public ::testing::Test {
 protected:
  ~TokenizerTest() override { std::remove(path_.c_str()); }
  absl::StatusOr<std::unique_ptr<Tokenizer>> FromBytes(const std::string& bytes) {
    EXPECT_TRUE(WriteWholeFile(path_, bytes).ok());
    auto file = GgufFile::Open(path_);
    if (!file.ok()) return file.status();
    return Tokenizer::FromGguf(**file);  // which must not keep pointers into the file
  }
  std::unique_ptr<Tokenizer> Tiny(const TinyGgufOptions& options = {}) {
    auto tokenizer = FromBytes(TinyGgufMetadata(options).Build());
    EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
    return *std::move(tokenizer);
  }
  void ExpectRefused(const std::string& bytes, const std::string& fault) {
    const absl::Status status = FromBytes(bytes).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(fault));
  }
  const std::string path_ = fmt::format("{}/tokenizer_test_{}.gguf", ::testing::TempDir(), getpid());
};

// Texts of the tokens, each between bars: "|The| the|".
std::string Cut(const Tokenizer& tokenizer, std::string_view text, const EncodeOptions& options = {}) {
  std::string out = "|";
  for (const TokenId token : tokenizer.Encode(text, options)) {
    out += tokenizer.Decode(std::vector<TokenId>{token}, true) + "|";
  }
  return out;
}

constexpr TokenId ByteToken(unsigned char byte) { return kTinyFirstByteToken + byte; }

TEST_F(TokenizerTest, MergesByRankNotByPlace) {
  const auto tokenizer = Tiny();
  EXPECT_EQ(Cut(*tokenizer, " the hello world"), "| the| hell|o| world|");
  EXPECT_EQ(Cut(*tokenizer, "hello"), "|hello|");
  EXPECT_EQ(Cut(*tokenizer, "tion"), "|tion|");
  EXPECT_EQ(Cut(*tokenizer, "ther"), "|t|he|r|");  // "he" outranks "er", and the rest has no merge
  EXPECT_EQ(Cut(*tokenizer, ""), "|");
}

TEST_F(TokenizerTest, SmollmSplitsDigitsSingly) {
  const auto tokenizer = Tiny();
  EXPECT_EQ(Cut(*tokenizer, "a 12"), "|a| |1|2|");
}

TEST_F(TokenizerTest, SpecialTokensAreTakenOutFirst) {
  const auto tokenizer = Tiny();
  EXPECT_THAT(tokenizer->Encode("<|im_start|>a<|im_end|>", {}), ElementsAre(kTinyImStart, ByteToken('a'), kTinyImEnd));
  const auto plain = tokenizer->Encode("<|im_end|>", {.parse_special = false});
  EXPECT_GT(plain.size(), 1u);
  EXPECT_EQ(tokenizer->Decode(plain, false), "<|im_end|>");
}

TEST_F(TokenizerTest, TheLongestOfSeveralSpecialTokensWins) {
  const auto tokenizer = Tiny({.extra_tokens = {{"<|im_end|>x", kTokenControl}, {"<|", kTokenControl}}});
  EXPECT_EQ(Cut(*tokenizer, "<|im_end|>xy<|im_end|>y<|z"), "|<|im_end|>x|y|<|im_end|>|y|<||z|");
}

TEST_F(TokenizerTest, UserDefinedTokensAreTextAndAlwaysFound) {
  const auto tokenizer = Tiny({.extra_tokens = {{"<tool>", kTokenUserDefined}}});
  for (const bool parse : {true, false}) {
    const auto tokens = tokenizer->Encode("a<tool>b", {.parse_special = parse});
    EXPECT_EQ(tokens.size(), 3u);
    EXPECT_EQ(tokenizer->Decode(tokens, /*with_special=*/false), "a<tool>b");
  }
}

TEST_F(TokenizerTest, DecodeHidesControlTokensUnlessAsked) {
  const auto tokenizer = Tiny();
  const std::vector<TokenId> tokens{kTinyImStart, ByteToken('h'), ByteToken('i'), kTinyImEnd};
  EXPECT_EQ(tokenizer->Decode(tokens, false), "hi");
  EXPECT_EQ(tokenizer->Decode(tokens, true), "<|im_start|>hi<|im_end|>");
  EXPECT_EQ(tokenizer->Decode(std::vector<TokenId>{4'000'000'000u}, true), "");
}

TEST_F(TokenizerTest, BosOnlyWhereTheFileAndTheCallerWantIt) {
  EXPECT_THAT(Tiny()->Encode("a", {}), ElementsAre(ByteToken('a')));
  const auto tokenizer = Tiny({.add_bos = true});
  EXPECT_THAT(tokenizer->Encode("a", {}), ElementsAre(kTinyImStart, ByteToken('a')));
  EXPECT_THAT(tokenizer->Encode("a", {.add_bos = false}), ElementsAre(ByteToken('a')));
  EXPECT_THAT(tokenizer->Encode("", {}), ElementsAre(kTinyImStart));
}

TEST_F(TokenizerTest, EveryByteStringSurvivesTheRoundTrip) {
  std::mt19937 random(20240607);
  for (const char* pre : {"smollm", "default", "gpt-2", "llama-bpe", "qwen2"}) {
    const auto tokenizer = Tiny({.pre = pre});
    const EncodeOptions options{.add_bos = false};
    for (int round = 0; round < 300; ++round) {
      std::string text(random() % 200, '\0');
      for (char& c : text) c = static_cast<char>(random());
      ASSERT_EQ(tokenizer->Decode(tokenizer->Encode(text, options), true), text) << pre;
    }
  }
}

TEST_F(TokenizerTest, RandomUnicodeSurvivesTheRoundTrip) {
  std::mt19937 random(7);
  const auto append = [](std::uint32_t code, std::string& out) {
    if (code < 0x80) {
      out += static_cast<char>(code);
    } else if (code < 0x800) {
      out += {static_cast<char>(0xc0 | code >> 6), static_cast<char>(0x80 | (code & 0x3f))};
    } else if (code < 0x10000) {
      out += {static_cast<char>(0xe0 | code >> 12), static_cast<char>(0x80 | (code >> 6 & 0x3f)),
              static_cast<char>(0x80 | (code & 0x3f))};
    } else {
      out += {static_cast<char>(0xf0 | code >> 18), static_cast<char>(0x80 | (code >> 12 & 0x3f)),
              static_cast<char>(0x80 | (code >> 6 & 0x3f)), static_cast<char>(0x80 | (code & 0x3f))};
    }
  };
  // Letters, digits, spaces, marks, scripts, emoji: the ranges where the expressions decide differently.
  constexpr std::pair<std::uint32_t, std::uint32_t> kRanges[] = {
      {0x09, 0x0d},   {0x20, 0x7e},   {0x85, 0x85},     {0xa0, 0x17f},    {0x300, 0x36f},     {0x400, 0x45f},
      {0x600, 0x6ff}, {0x900, 0x97f}, {0x2000, 0x206f}, {0x3000, 0x30ff}, {0x1f300, 0x1f6ff}, {0x10000, 0x10ffff}};
  for (const char* pre : {"smollm", "default", "gpt-2", "llama-bpe", "qwen2"}) {
    const auto tokenizer = Tiny({.pre = pre});
    for (int round = 0; round < 300; ++round) {
      std::string text;
      for (std::size_t n = random() % 100; n > 0; --n) {
        const auto [low, high] = kRanges[random() % std::size(kRanges)];
        append(low + random() % (high - low + 1), text);
      }
      ASSERT_EQ(tokenizer->Decode(tokenizer->Encode(text, {.add_bos = false}), true), text) << pre;
    }
  }
}

// The queue for long pieces and the scan for short ones must merge alike. The alphabet makes merges overlap often.
TEST_F(TokenizerTest, LongPiecesMergeLikeShortOnes) {
  const auto tokenizer = Tiny();
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    // "q" has no merges: pieces between them merge alone, so a long piece equals its parts.
    std::string all;
    std::vector<TokenId> parts;
    for (int part = 0; part < 12; ++part) {
      std::string word;
      for (std::size_t n = 1 + random() % 40; n > 0; --n) word += "thinaroesl"[random() % 10];
      word += 'q';
      all += word;
      const auto tokens = tokenizer->Encode(word, {});
      parts.insert(parts.end(), tokens.begin(), tokens.end());
    }
    ASSERT_GT(all.size(), 64u);
    ASSERT_EQ(tokenizer->Encode(all, {}), parts) << all;
  }
}

// A quarter megabyte without a place to split must take neither long nor much stack.
TEST_F(TokenizerTest, LongRunsOfOneKindAreEncoded) {
  for (const char* pre : {"smollm", "llama-bpe", "default"}) {
    const auto tokenizer = Tiny({.pre = pre});
    for (const char c : {'e', ' ', '\n', '!', '7', '\x80'}) {
      const std::string text(256 << 10, c);
      ASSERT_EQ(tokenizer->Decode(tokenizer->Encode(text, {.add_bos = false}), true).size(), text.size()) << pre << c;
    }
  }
}

TEST_F(TokenizerTest, ThreadsShareOne) {
  const auto tokenizer = Tiny();
  const std::string text = " the hello world 12 <|im_end|> \xc3\xa9\n\n";
  const auto expected = tokenizer->Encode(text, {});
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (std::size_t t = 0; t < wrong.size(); ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 500; ++i) wrong[t] += tokenizer->Encode(text, {}) == expected ? 0 : 1;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(wrong, ::testing::Each(0));
}

TEST_F(TokenizerTest, RefusesOtherTokenizersByName) {
  ExpectRefused(TinyGgufMetadata({.tokenizer_model = "llama"}).Build(), "\"llama\"");
  ExpectRefused(TinyGgufMetadata({.pre = "chameleon"}).Build(), "\"chameleon\"");
  ExpectRefused(GgufWriter().Build(), "tokenizer.ggml.model");
}

TEST_F(TokenizerTest, RefusesMalformedVocabularies) {
  const auto vocabulary = [](const std::vector<std::string>& tokens, const std::vector<std::int32_t>& types,
                             const std::vector<std::string>& merges) {
    GgufWriter writer;
    writer.AddString("tokenizer.ggml.model", "gpt2");
    writer.AddString("tokenizer.ggml.pre", "gpt-2");
    writer.AddStrings("tokenizer.ggml.tokens", tokens);
    writer.AddI32s("tokenizer.ggml.token_type", types);
    writer.AddStrings("tokenizer.ggml.merges", merges);
    return writer;
  };
  ExpectRefused(vocabulary({}, {}, {}).Build(), "tokenizer.ggml.tokens is empty");
  ExpectRefused(vocabulary({"a", "b"}, {1}, {}).Build(), "1 integers for 2 tokens");
  for (const char* merge : {"ab", "a ", "", " "}) {
    ExpectRefused(vocabulary({"a", "b"}, {1, 1}, {"a b", merge}).Build(), "merge 1");
  }
  for (const char* key : {"tokenizer.ggml.bos_token_id", "tokenizer.ggml.eos_token_id"}) {
    GgufWriter outside = vocabulary({"a", "b"}, {1, 1}, {});
    outside.AddU32(key, 2);
    ExpectRefused(outside.Build(), key);
  }
  GgufWriter no_bos = vocabulary({"a", "b"}, {1, 1}, {});
  no_bos.AddBool("tokenizer.ggml.add_bos_token", true);
  ExpectRefused(no_bos.Build(), "bos_token_id");
  GgufWriter no_tokens;
  no_tokens.AddString("tokenizer.ggml.model", "gpt2");
  no_tokens.AddString("tokenizer.ggml.pre", "gpt-2");
  ExpectRefused(no_tokens.Build(), "tokenizer.ggml.tokens");
}

// Merges whose parts or results are no tokens are passed through, and come out as bytes.
TEST_F(TokenizerTest, MergesWithoutTokensFallBackToBytes) {
  GgufWriter writer;
  writer.AddString("tokenizer.ggml.model", "gpt2");
  writer.AddString("tokenizer.ggml.pre", "gpt-2");
  writer.AddStrings("tokenizer.ggml.tokens", {"a", "b", "c", "abc"});
  writer.AddStrings("tokenizer.ggml.merges", {"a b", "ab c"});
  const auto tokenizer = FromBytes(writer.Build());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_THAT((*tokenizer)->Encode("abc", {}), ElementsAre(3));
  EXPECT_THAT((*tokenizer)->Encode("abb", {}), ElementsAre(0, 1, 1));
  EXPECT_THAT((*tokenizer)->Encode("xa\xff", {}), ElementsAre(0));  // no token, and U+FFFD has none either
}

}  // namespace
}  // namespace kvist::engine
