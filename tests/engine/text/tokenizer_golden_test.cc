// The real model's tokenizer and template against the reference's (tests/reference/make_goldens.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/text/chat_template.h"
#include "engine/text/tokenizer.h"
#include "tests/engine/golden_file.h"
#include "tests/engine/real_model.h"

namespace kvist::engine {
namespace {

class TokenizerGolden : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string path = RealModelPath();
    KVIST_REQUIRE_REAL_MODEL(path);
    auto file = GgufFile::Open(path);
    ASSERT_TRUE(file.ok()) << file.status();
    file_ = *std::move(file);
    auto tokenizer = Tokenizer::FromGguf(*file_);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    tokenizer_ = *std::move(tokenizer);
    golden_ = ReadGolden("tokenizer.json");
    ASSERT_TRUE(golden_.is_object());
    ASSERT_GE(golden_["prompts"].size(), 24u);
  }
  std::unique_ptr<GgufFile> file_;
  std::unique_ptr<Tokenizer> tokenizer_;
  nlohmann::json golden_;
};

TEST_F(TokenizerGolden, TokenIdsEqualTheReferences) {
  for (const auto& prompt : golden_["prompts"]) {
    SCOPED_TRACE(prompt["name"].get<std::string>());
    const auto text = prompt["text"].get<std::string>();
    EXPECT_EQ(tokenizer_->Encode(text, {}), prompt["tokens"].get<std::vector<TokenId>>());
    // Where recognising special tokens makes no difference, the file does not repeat the ids.
    const auto& plain = prompt.contains("plain_tokens") ? prompt["plain_tokens"] : prompt["tokens"];
    EXPECT_EQ(tokenizer_->Encode(text, {.parse_special = false}), plain.get<std::vector<TokenId>>());
  }
}

TEST_F(TokenizerGolden, DecodingGivesTheTextBack) {
  int compared = 0;
  for (const auto& prompt : golden_["prompts"]) {
    const auto name = prompt["name"].get<std::string>();
    if (name == "controls" || name == "beyond_bmp") continue;  // with bytes that this vocabulary has no tokens for
    EXPECT_EQ(tokenizer_->Decode(prompt["tokens"].get<std::vector<TokenId>>(), /*with_special=*/true),
              prompt["text"].get<std::string>())
        << name;
    ++compared;
  }
  EXPECT_GE(compared, 24);
}

TEST_F(TokenizerGolden, ChatsRenderAsTheFilesTemplateDoes) {
  const auto chat = ChatTemplate::FromGguf(*file_);
  ASSERT_TRUE(chat.ok()) << chat.status();
  int compared = 0;
  for (const auto& prompt : golden_["prompts"]) {
    if (!prompt.contains("messages")) continue;
    std::vector<ChatMessage> messages;
    for (const auto& message : prompt["messages"]) messages.push_back({message["role"], message["content"]});
    EXPECT_EQ(chat->Render(messages), prompt["text"].get<std::string>()) << prompt["name"];
    ++compared;
  }
  EXPECT_GE(compared, 4);
}

TEST_F(TokenizerGolden, KnowsTheModelsEndTokens) {
  const auto end_of_text = tokenizer_->Encode("<|endoftext|>", {});
  const auto im_end = tokenizer_->Encode("<|im_end|>", {});
  const auto im_start = tokenizer_->Encode("<|im_start|>", {});
  ASSERT_EQ(end_of_text.size(), 1u);
  ASSERT_EQ(im_end.size(), 1u);
  ASSERT_EQ(im_start.size(), 1u);
  EXPECT_TRUE(tokenizer_->IsEndOfGeneration(end_of_text[0]));
  EXPECT_TRUE(tokenizer_->IsEndOfGeneration(im_end[0]));
  EXPECT_FALSE(tokenizer_->IsEndOfGeneration(im_start[0]));
  EXPECT_FALSE(tokenizer_->IsEndOfGeneration(500));
  EXPECT_EQ(tokenizer_->vocabulary_size(), 49152u);
  EXPECT_EQ(tokenizer_->bos(), im_start[0]);
}

// A byte that the vocabulary cannot spell becomes U+FFFD where it is no UTF-8; all others survive.
TEST_F(TokenizerGolden, InvalidUtf8KeepsTheBytesItHasTokensFor) {
  const auto round_trip = [this](const std::string& text) {
    return tokenizer_->Decode(tokenizer_->Encode(text, {}), true);
  };
  EXPECT_EQ(round_trip("a\x80z"), "a\x80z");
  EXPECT_EQ(round_trip("caf\xc3"), "caf\xc3");
  EXPECT_EQ(round_trip("\xff!"), "\xef\xbf\xbd!");
}

}  // namespace
}  // namespace kvist::engine
