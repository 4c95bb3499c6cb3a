// D4: pages computed under other weights, served under the same name, must miss. The file's name, tokenizer and store
// folder stay; one attention tensor, the RoPE base, or the block's KV layout changes.
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/engine/tiny_engine.h"

namespace kvist::engine {
namespace {

class D04OtherWeights : public ::testing::Test {
 protected:
  // Runs the prompt on the model these options make, always at the same path and store.
  GenerateResult Run(const TinyGgufOptions& options, bool cached) {
    TinyEngine engine(folder_ / "model.gguf", options);
    auto store = OpenTinyStore(folder_ / "store");
    StoreBinding binding;
    binding.store = cached ? store.get() : nullptr;
    absl::StatusOr<GenerateResult> result = engine.Generate(binding, engine.Prompt(65));
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? *std::move(result) : GenerateResult();
  }

  ScratchFolder folder_;
};

TEST_F(D04OtherWeights, EveryChangeOfTheModelMissesAndEqualsItsOwnColdRun) {
  const TinyGgufOptions a;
  Run(a, true);
  ASSERT_EQ(Run(a, true).cached_tokens, 64u);  // the store works: only the change below can cause the miss

  TinyGgufOptions altered = a;
  altered.altered_tensor = "blk.1.attn_k.weight";
  TinyGgufOptions rope = a;
  rope.rope_base = 20000.0f;
  TinyGgufOptions heads = a;  // another KV layout
  heads.kv_heads = 4;
  for (const TinyGgufOptions& b : {altered, rope, heads}) {
    const std::vector<TokenId> cold = Run(b, false).tokens;
    const GenerateResult first = Run(b, true);
    EXPECT_EQ(first.cached_tokens, 0u);
    EXPECT_EQ(first.tokens, cold);
    EXPECT_EQ(Run(b, true).cached_tokens, 64u);
  }
  EXPECT_EQ(Run(a, true).cached_tokens, 64u);  // and A's own blocks are still A's
}

}  // namespace
}  // namespace kvist::engine
