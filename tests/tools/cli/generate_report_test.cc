#include "tools/cli/generate_report.h"

#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace kvist::cli {
namespace {

engine::GenerateResult Result() {
  engine::GenerateResult result;
  result.tokens = {1, 2, 3};
  result.text = "hm";
  result.finish_reason = "stop";
  result.prompt_tokens = 100;
  result.ttft = absl::Milliseconds(1500);
  result.decode = absl::Milliseconds(500);
  return result;
}

TEST(TierOf, NamesEveryTierThatGaveSomething) {
  engine::GenerateResult result = Result();
  EXPECT_EQ(TierOf(result), "-");
  result.cached_from_dram = 64;
  EXPECT_EQ(TierOf(result), "dram");
  result.cached_from_nvme = 64;
  EXPECT_EQ(TierOf(result), "dram+nvme");
  result.cached_from_dram = 0;
  EXPECT_EQ(TierOf(result), "nvme");
  result.cached_from_shared = 64;
  EXPECT_EQ(TierOf(result), "nvme+shared");
  result.cached_from_nvme = 0;
  EXPECT_EQ(TierOf(result), "shared");
}

TEST(DecodeTokensPerSecond, LeavesOutTheFirstToken) {
  engine::GenerateResult result = Result();
  EXPECT_DOUBLE_EQ(DecodeTokensPerSecond(result), 4.0);
  result.tokens = {1};
  EXPECT_EQ(DecodeTokensPerSecond(result), 0.0);
  result.tokens = {};
  EXPECT_EQ(DecodeTokensPerSecond(result), 0.0);
}

TEST(GenerateReport, JsonHoldsTheWholeResult) {
  const auto json = nlohmann::json::parse(ToJson(Result(), "/m.gguf"));
  EXPECT_EQ(json["model"], "/m.gguf");
  EXPECT_EQ(json["tokens"], (std::vector<int>{1, 2, 3}));
  EXPECT_EQ(json["tier"], "-");
  EXPECT_EQ(json["ttft_s"], 1.5);
  EXPECT_EQ(json["store_error"], "");
}

TEST(GenerateReport, JsonSurvivesTextCutWithinACharacter) {
  engine::GenerateResult result = Result();
  result.text = "a\xe2\x82";
  EXPECT_EQ(nlohmann::json::parse(ToJson(result, "m"))["text"], "a\xef\xbf\xbd");
}

TEST(GenerateReport, SummaryIsOneLine) {
  const std::string line = SummaryLine(Result());
  EXPECT_EQ(line.find('\n'), std::string::npos);
  EXPECT_NE(line.find("100 prompt tokens, 0 cached (tier -), first token after 1.500 s"), std::string::npos) << line;
}

}  // namespace
}  // namespace kvist::cli
