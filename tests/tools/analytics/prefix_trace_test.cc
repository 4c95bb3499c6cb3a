#include "tools/analytics/prefix_trace.h"

#include <filesystem>
#include <fstream>
#include <sstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace kvist::analytics {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

absl::StatusOr<PrefixTrace> Mooncake(const std::string& text) {
  std::istringstream lines(text);
  return ReadMooncakeTrace(lines, "trace");
}

class AgentSessionsTest : public ::testing::Test {
 protected:
  AgentSessionsTest() { std::filesystem::create_directories(folder_); }
  ~AgentSessionsTest() override { std::filesystem::remove_all(folder_); }
  void Write(const std::string& name, const std::string& text) { std::ofstream(folder_ / name) << text; }

  const std::filesystem::path folder_ =
      std::filesystem::path(::testing::TempDir()) /
      ("agent_sessions_" + std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()));
};

TEST(MooncakeTrace, NumbersBlocksInOrderOfAppearance) {
  const auto trace = Mooncake(
      "{\"timestamp\": 0, \"input_length\": 1100, \"output_length\": 5, \"hash_ids\": [7, 9, 8]}\n"
      "{\"timestamp\": 30, \"input_length\": 1000, \"output_length\": 5, \"hash_ids\": [7, 5]}\n");
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_EQ(trace->block_tokens, 512u);
  EXPECT_EQ(trace->distinct_blocks, 4u);
  ASSERT_EQ(trace->requests.size(), 2u);
  EXPECT_THAT(trace->requests[0].blocks, ElementsAre(0, 1, 2));
  EXPECT_THAT(trace->requests[1].blocks, ElementsAre(0, 3));
  EXPECT_EQ(trace->requests[1].time_ms, 30);
  EXPECT_EQ(trace->requests[1].tokens, 1000u);
}

TEST(MooncakeTrace, SameIdAfterAnotherPrefixIsAnotherBlock) {
  const auto trace = Mooncake(
      "{\"timestamp\": 0, \"input_length\": 1024, \"hash_ids\": [1, 3]}\n"
      "{\"timestamp\": 0, \"input_length\": 1024, \"hash_ids\": [2, 3]}\n");
  ASSERT_TRUE(trace.ok());
  EXPECT_THAT(trace->requests[1].blocks, ElementsAre(2, 3));
  EXPECT_EQ(trace->distinct_blocks, 4u);
}

TEST(MooncakeTrace, EveryOtherShapeIsRefusedWithItsLine) {
  const std::string good = "{\"timestamp\": 0, \"input_length\": 600, \"hash_ids\": [1, 2]}\n";
  for (const std::string bad :
       {"nonsense", "[]", "{}", "{\"timestamp\": -1, \"input_length\": 600, \"hash_ids\": [1, 2]}",
        "{\"timestamp\": 0, \"input_length\": \"600\", \"hash_ids\": [1, 2]}",
        "{\"timestamp\": 0, \"input_length\": 600, \"hash_ids\": 1}",
        "{\"timestamp\": 0, \"input_length\": 600, \"hash_ids\": [1, -2]}",
        "{\"timestamp\": 0, \"input_length\": 6000, \"hash_ids\": [1, 2]}",
        "{\"timestamp\": 0, \"input_length\": 100, \"hash_ids\": [1, 2]}"}) {
    const auto trace = Mooncake(good + bad + "\n");
    ASSERT_FALSE(trace.ok()) << bad;
    EXPECT_THAT(std::string(trace.status().message()), HasSubstr("line 2")) << bad;
  }
}

TEST(MooncakeTrace, MissingFileIsNamed) {
  EXPECT_THAT(std::string(ReadMooncakeTrace(std::filesystem::path("/nowhere/trace")).status().message()),
              HasSubstr("/nowhere/trace"));
}

TEST(LargerBlocks, AreSharedOnlyIfWhollyEqual) {
  const auto trace = Mooncake(
      "{\"timestamp\": 0, \"input_length\": 2560, \"hash_ids\": [1, 2, 3, 4, 5]}\n"
      "{\"timestamp\": 0, \"input_length\": 2048, \"hash_ids\": [1, 2, 3, 6]}\n");
  ASSERT_TRUE(trace.ok());
  const PrefixTrace larger = WithLargerBlocks(*trace, 2);
  EXPECT_EQ(larger.block_tokens, 1024u);
  EXPECT_THAT(larger.requests[0].blocks, ElementsAre(0, 1, 2));
  EXPECT_THAT(larger.requests[1].blocks, ElementsAre(0, 3));
  EXPECT_EQ(larger.distinct_blocks, 4u);
}

TEST(WithoutPartialBlocks, KeepsWhatIsFull) {
  const auto trace = Mooncake(
      "{\"timestamp\": 0, \"input_length\": 1100, \"hash_ids\": [1, 2, 3]}\n"
      "{\"timestamp\": 0, \"input_length\": 1024, \"hash_ids\": [1, 2]}\n"
      "{\"timestamp\": 0, \"input_length\": 20, \"hash_ids\": [4]}\n");
  ASSERT_TRUE(trace.ok());
  const PrefixTrace full = WithoutPartialBlocks(*trace);
  EXPECT_THAT(full.requests[0].blocks, ElementsAre(0, 1));
  EXPECT_THAT(full.requests[1].blocks, ElementsAre(0, 1));
  EXPECT_THAT(full.requests[2].blocks, ElementsAre());
  EXPECT_EQ(full.requests[2].tokens, 20u);
  EXPECT_EQ(full.distinct_blocks, 2u);
}

TEST_F(AgentSessionsTest, IdsHoldWithinTheirFile) {
  Write("trace_1.json", R"({"block_size": 64, "requests": [{"t": 0, "in": 128, "hash_ids": [1, 2]}]})");
  Write("trace_2.json", R"({"block_size": 64, "requests": [{"t": 0, "in": 128, "hash_ids": [1, 2]}]})");
  const auto trace = ReadAgentSessions(folder_, 0);
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_EQ(trace->distinct_blocks, 4u);
}

TEST_F(AgentSessionsTest, AreInterleavedByTimeAndNestedOnesCount) {
  Write("trace_1.json", R"({"block_size": 64, "requests": [
    {"t": 0.5, "in": 64, "hash_ids": [1]},
    {"t": 1, "type": "subagent", "requests": [{"t": 3, "in": 128, "hash_ids": [1, 2]}]}]})");
  Write("trace_2.json", R"({"block_size": 64, "requests": [{"t": 0, "in": 70, "hash_ids": [1]}]})");
  Write("LICENSE", "not a session");
  const auto trace = ReadAgentSessions(folder_, 1000);
  ASSERT_TRUE(trace.ok()) << trace.status();
  ASSERT_EQ(trace->requests.size(), 3u);
  EXPECT_EQ(trace->requests[0].time_ms, 500);
  EXPECT_EQ(trace->requests[1].time_ms, 1000);
  EXPECT_EQ(trace->requests[1].tokens, 70u);
  EXPECT_EQ(trace->requests[2].time_ms, 3000);
}

TEST_F(AgentSessionsTest, FaultsAreNamedWithTheirFile) {
  EXPECT_THAT(std::string(ReadAgentSessions(folder_, 0).status().message()), HasSubstr(folder_.string()));
  Write("trace_1.json", R"({"block_size": 64, "requests": []})");
  Write("trace_2.json", R"({"block_size": 32, "requests": []})");
  EXPECT_THAT(std::string(ReadAgentSessions(folder_, 0).status().message()), HasSubstr("trace_2.json"));
  Write("trace_2.json", R"({"block_size": 64, "requests": [{"t": 0, "in": 640, "hash_ids": [1]}]})");
  EXPECT_THAT(std::string(ReadAgentSessions(folder_, 0).status().message()), HasSubstr("trace_2.json"));
  Write("trace_2.json", "{");
  EXPECT_THAT(std::string(ReadAgentSessions(folder_, 0).status().message()), HasSubstr("trace_2.json"));
}

}  // namespace
}  // namespace kvist::analytics
