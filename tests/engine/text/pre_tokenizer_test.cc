#include "engine/text/pre_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace kvist::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> Split(const char* name, std::string_view text) {
  const auto pre = PreTokenizer::Create(name);
  EXPECT_TRUE(pre.ok()) << pre.status();
  std::vector<std::string_view> pieces;
  (*pre)->Split(text, pieces);
  return {pieces.begin(), pieces.end()};
}

TEST(PreTokenizer, Gpt2KeepsSpacesWithTheWord) {
  EXPECT_THAT(Split("gpt-2", "Hello  world, it's 12 é!?\n\n x"),
              ElementsAre("Hello", " ", " world", ",", " it", "'s", " 12", " é", "!?", "\n\n", " x"));
}

TEST(PreTokenizer, SmollmSplitsEveryDigit) {
  EXPECT_THAT(Split("smollm", "x 12a  3"), ElementsAre("x", " ", "1", "2", "a", "  ", "3"));
  EXPECT_THAT(Split("smollm", "½²"), ElementsAre("½", "²"));
}

TEST(PreTokenizer, LlamaGroupsThreeDigitsAndIgnoresCase) {
  EXPECT_THAT(Split("llama-bpe", "I'LL pay 12345\r\n\n now"),
              ElementsAre("I", "'LL", " pay", " ", "123", "45", "\r\n\n", " now"));
  EXPECT_THAT(Split("llama-bpe", "(word)\n  \n  x"), ElementsAre("(word", ")\n", "  \n", " ", " x"));
}

TEST(PreTokenizer, Qwen2SplitsDigitsSingly) {
  EXPECT_THAT(Split("qwen2", "a 123.4"), ElementsAre("a", " ", "1", "2", "3", ".", "4"));
}

TEST(PreTokenizer, DefaultTakesPunctuationAndThreeDigitsApart) {
  EXPECT_THAT(Split("default", "a,b 12345"), ElementsAre("a", ",", "b", " ", "123", "45"));
}

TEST(PreTokenizer, SpaceIsUnicodesWhiteSpace) {
  EXPECT_THAT(Split("gpt-2", "a\u2003\u2003b"), ElementsAre("a", "\u2003", "\u2003", "b"));
  EXPECT_THAT(Split("gpt-2", "a\u180eb"), ElementsAre("a", "\u180e", "b"));  // a format character, no space
  EXPECT_THAT(Split("gpt-2", "\u180e\u180e\u2003"), ElementsAre("\u180e\u180e", "\u2003"));
}

TEST(PreTokenizer, EmptyTextHasNoPieces) { EXPECT_THAT(Split("smollm", ""), ElementsAre()); }

TEST(PreTokenizer, UnknownNamesAreRefusedWithTheKnownOnes) {
  const auto pre = PreTokenizer::Create("tekken");
  EXPECT_EQ(pre.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(pre.status().message()), HasSubstr("\"tekken\""));
  EXPECT_THAT(std::string(pre.status().message()), HasSubstr("smollm"));
}

}  // namespace
}  // namespace kvist::engine
