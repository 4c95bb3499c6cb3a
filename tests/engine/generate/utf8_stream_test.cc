#include "engine/generate/utf8_stream.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace kvist::engine {
namespace {

TEST(Utf8Stream, HoldsBackUnfinishedCharacters) {
  Utf8Stream stream;
  const std::string text = "a\xC3\xA5\xE2\x82\xAC\xF0\x9F\x8C\xBF";  // a å € 🌿
  std::vector<std::string> pieces;
  for (char byte : text) pieces.push_back(stream.Push(std::string_view(&byte, 1)));
  EXPECT_EQ(pieces,
            (std::vector<std::string>{"a", "", "\xC3\xA5", "", "", "\xE2\x82\xAC", "", "", "", "\xF0\x9F\x8C\xBF"}));
  EXPECT_EQ(stream.Finish(), "");
}

TEST(Utf8Stream, LosesNoByteOfInvalidInput) {
  for (const std::string text : {"\xFF\xFE", "\x80\x80\x80\x80", "\xE2\x82", "\xC3", "\xF0\x9F\x8C", "\xC0\xAF z"}) {
    Utf8Stream stream;
    std::string out;
    for (char byte : text) out += stream.Push(std::string_view(&byte, 1));
    EXPECT_EQ(out + stream.Finish(), text);
  }
}

TEST(Utf8Stream, PassesBytesThatCanNeverFinishAtOnce) {
  Utf8Stream stream;
  EXPECT_EQ(stream.Push("\xF0\x9F!"), "\xF0\x9F!");
  EXPECT_EQ(stream.Push("\x80\x80\x80\x80"), "\x80\x80\x80\x80");
}

}  // namespace
}  // namespace kvist::engine
