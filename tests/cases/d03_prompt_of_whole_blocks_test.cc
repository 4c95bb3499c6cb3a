// D3: a prompt that is an exact multiple of the block size and wholly cached must still yield logits: the last token is
// always computed.
#include <vector>

#include "gtest/gtest.h"
#include "tests/engine/tiny_engine.h"

namespace kvist::engine {
namespace {

TEST(D03PromptOfWholeBlocks, SecondRunEqualsFirstAtEveryBoundary) {
  ScratchFolder folder;
  TinyEngine engine(folder / "tiny.gguf", TinyGgufOptions{});
  auto store = OpenTinyStore(folder / "store");
  constexpr std::size_t kBlock = TinyEngine::kBlockTokens;
  std::uint64_t seed = 10;
  for (std::size_t length : {kBlock - 1, kBlock, kBlock + 1, 2 * kBlock - 1, 2 * kBlock, 2 * kBlock + 1}) {
    const std::vector<TokenId> prompt = engine.Prompt(length, seed++);
    StoreBinding binding;
    binding.store = store.get();
    const absl::StatusOr<GenerateResult> first = engine.Generate(binding, prompt);
    const absl::StatusOr<GenerateResult> second = engine.Generate(binding, prompt);
    ASSERT_TRUE(first.ok() && second.ok()) << first.status() << second.status();
    EXPECT_EQ(first->cached_tokens, 0u) << length;
    EXPECT_EQ(second->cached_tokens, (length - 1) / kBlock * kBlock) << length;
    EXPECT_LT(second->cached_tokens, length);
    EXPECT_EQ(second->tokens, first->tokens) << length;
  }
}

}  // namespace
}  // namespace kvist::engine
