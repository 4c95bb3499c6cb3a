// The engine on the real model against a trusted one: llama.cpp on the same weights dequantised to F32, with an F32 KV
// cache (tests/reference/make_goldens.py). Each continuation is fed the reference's tokens, so that one near-tie does
// not spoil the rest: at every step Kvist must choose the reference's token, or, where the reference's two best are
// closer than rounding, give both of them the reference's logits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/model/model.h"
#include "engine/text/tokenizer.h"
#include "tests/engine/golden_file.h"
#include "tests/engine/real_model.h"

namespace kvist::engine {
namespace {

// Largest logit difference put down to rounding; logits here lie around 10 to 25. Kvist stores KV as F16, the reference
// as F32. Over the 36 prompts the largest measured is 0.018 (each test prints its own), and llama.cpp's own between
// the two KV types 0.027 (generation.json).
constexpr double kTolerance = 0.04;
constexpr std::size_t kPageTokens = 64;

// One sequence's KV in plain memory.
class HostPages {
 public:
  HostPages(const Model& model, std::size_t tokens) {
    const KvLayout layout = model.kv_layout(kPageTokens);
    kv_.page_tokens = kPageTokens;
    const std::size_t bytes = layout.layers * layout.layer_bytes;
    for (std::size_t page = 0; page * kPageTokens < tokens; ++page) {
      memory_.push_back(std::make_unique<Page[]>((bytes + sizeof(Page) - 1) / sizeof(Page)));
      std::byte* const data = memory_.back()[0].bytes;
      kv_.pages.push_back({data, data, static_cast<std::uint32_t>(page)});
    }
  }
  KvPages& kv() { return kv_; }

 private:
  struct alignas(4096) Page {
    std::byte bytes[4096];
  };
  std::vector<std::unique_ptr<Page[]>> memory_;
  KvPages kv_;
};

struct GoldenFiles {
  nlohmann::json tokenizer = ReadGolden("tokenizer.json");
  nlohmann::json generation = ReadGolden("generation.json");
};
const GoldenFiles& Goldens() {
  static const GoldenFiles files;
  return files;
}

std::vector<std::string> PromptNames() {
  std::vector<std::string> names;
  if (!Goldens().generation.is_object()) return names;
  for (const auto& prompt : Goldens().generation["prompts"]) names.push_back(prompt["name"]);
  return names;
}

const nlohmann::json* Named(const nlohmann::json& prompts, const std::string& name) {
  for (const auto& prompt : prompts) {
    if (prompt["name"] == name) return &prompt;
  }
  return nullptr;
}

class ContinuationGolden : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const std::string path = RealModelPath();
    KVIST_REQUIRE_REAL_MODEL(path);
    auto file = GgufFile::Open(path);
    ASSERT_TRUE(file.ok()) << file.status();
    file_ = *std::move(file);
    auto model = Model::Load(file_, {});
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = *std::move(model);
  }
  std::shared_ptr<const GgufFile> file_;
  std::unique_ptr<Model> model_;
};

// The largest of `logits`, the lowest id among equals.
std::size_t Best(const std::vector<float>& logits) {
  return static_cast<std::size_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

TEST_P(ContinuationGolden, GreedyTokensEqualTheReferences) {
  const nlohmann::json* const text = Named(Goldens().tokenizer["prompts"], GetParam());
  const nlohmann::json* const golden = Named(Goldens().generation["prompts"], GetParam());
  ASSERT_NE(text, nullptr);
  ASSERT_NE(golden, nullptr);
  const auto tokenizer = Tokenizer::FromGguf(*file_);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const std::vector<TokenId> prompt = (*tokenizer)->Encode((*text)["text"].get<std::string>(), {});
  ASSERT_EQ(prompt, (*text)["tokens"].get<std::vector<TokenId>>());
  const auto tokens = (*golden)["tokens"].get<std::vector<TokenId>>();
  const auto seconds = (*golden)["seconds"].get<std::vector<TokenId>>();
  const auto best_logits = (*golden)["best_logits"].get<std::vector<double>>();
  const auto second_logits = (*golden)["second_logits"].get<std::vector<double>>();
  ASSERT_EQ(tokens.size(), 64u);

  HostPages pages(*model_, prompt.size() + tokens.size());
  std::vector<float> logits(model_->config().vocab);
  ASSERT_TRUE(model_->Forward(prompt, 0, pages.kv(), logits).ok());
  if (golden->contains("top")) {
    for (const auto& top : (*golden)["top"]) {
      EXPECT_NEAR(logits[top[0].get<std::size_t>()], top[1].get<double>(), kTolerance) << "token " << top[0];
    }
  }
  double largest = 0;
  int ties = 0;
  for (std::size_t step = 0; step < tokens.size(); ++step) {
    const double best_difference = std::abs(logits[tokens[step]] - best_logits[step]);
    const double second_difference = std::abs(logits[seconds[step]] - second_logits[step]);
    largest = std::max({largest, best_difference, second_difference});
    if (best_logits[step] - second_logits[step] > 2 * kTolerance) {  // each may be off by the tolerance
      ASSERT_EQ(Best(logits), tokens[step]) << "step " << step;
    } else {
      ++ties;
      EXPECT_LE(best_difference, kTolerance) << "step " << step;
      EXPECT_LE(second_difference, kTolerance) << "step " << step;
    }
    if (step + 1 == tokens.size()) break;
    const TokenId next = tokens[step];
    ASSERT_TRUE(model_->Forward({&next, 1}, prompt.size() + step, pages.kv(), logits).ok());
  }
  RecordProperty("largest_logit_difference", std::to_string(largest));
  std::cout << "largest logit difference " << largest << ", near-ties " << ties << "\n";
}

INSTANTIATE_TEST_SUITE_P(Prompts, ContinuationGolden, ::testing::ValuesIn(PromptNames()),
                         [](const auto& prompt) { return prompt.param; });

TEST(GoldenFiles, CoverTwentyPromptsAtLeast) {
  EXPECT_GE(PromptNames().size(), 20u);
  int with_logits = 0;
  for (const auto& prompt : Goldens().generation["prompts"]) with_logits += prompt.contains("top") ? 1 : 0;
  EXPECT_GE(with_logits, 6);
}

}  // namespace
}  // namespace kvist::engine
