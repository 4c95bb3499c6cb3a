#include "tools/cli/prompt_source.h"

#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <string>

#include "gtest/gtest.h"

namespace kvist::cli {
namespace {

class ReadPromptTest : public testing::Test {
 protected:
  ~ReadPromptTest() override { std::remove(path_.c_str()); }
  void Write(const std::string& text) { std::ofstream(path_, std::ios::binary) << text; }

  const std::string path_ = testing::TempDir() + "kvist-prompt-" + std::to_string(getpid());
};

TEST_F(ReadPromptTest, KeepsEveryByte) {
  const std::string text("a\0b\xff\r\n", 6);
  Write(text);
  const auto read = ReadPrompt(path_);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, text);
}

TEST_F(ReadPromptTest, NamesAMissingFile) {
  const auto read = ReadPrompt(path_);
  EXPECT_EQ(read.status().code(), absl::StatusCode::kNotFound);
  EXPECT_NE(std::string(read.status().message()).find(path_), std::string::npos);
}

TEST_F(ReadPromptTest, RefusesWhatNoContextHolds) {
  Write(std::string(kPromptBytesMax + 1, 'a'));
  EXPECT_EQ(ReadPrompt(path_).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(ReadPromptTest, TakesTheLongestThatIsAllowed) {
  Write(std::string(kPromptBytesMax, 'a'));
  EXPECT_TRUE(ReadPrompt(path_).ok());
}

TEST_F(ReadPromptTest, RefusesADirectory) {
  EXPECT_EQ(ReadPrompt(testing::TempDir()).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace kvist::cli
