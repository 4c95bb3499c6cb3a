#include "engine/generate/generator.h"

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cachestore/await.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/tiny_engine.h"

namespace kvist::engine {
namespace {

using ::testing::HasSubstr;

constexpr std::size_t kBlock = TinyEngine::kBlockTokens;

// A store that answers every call with an error, as an overloaded or dying daemon may.
class BrokenStore final : public PrefixStore {
 public:
  explicit BrokenStore(bool opens) : opens_(opens) {}
  absl::StatusOr<Namespace> OpenNamespace(const NamespaceSpec& spec, const NamespaceOptions&) override {
    if (!opens_) return Broken();
    return Namespace{{1, 2}, spec};
  }
  void Match(const NamespaceId&, std::span<const TokenId>, const CallOptions&, Done<PrefixMatch> done) override {
    std::move(done)(Broken());
  }
  void Acquire(const NamespaceId&, std::span<const TokenId>, std::size_t, const CallOptions&,
               Done<Lease> done) override {
    std::move(done)(Broken());
  }
  absl::StatusOr<WriteGrant> Grant(const NamespaceId&) override { return Broken(); }
  void Commit(CommitRequest, const CallOptions&, Done<BlockKey> done) override { std::move(done)(Broken()); }
  void Touch(const NamespaceId&, std::span<const TokenId>, const CallOptions&, Done<std::size_t> done) override {
    std::move(done)(Broken());
  }
  void Pin(const NamespaceId&, std::span<const TokenId>, const CallOptions&, Done<std::size_t> done) override {
    std::move(done)(Broken());
  }
  void Unpin(const NamespaceId&, std::span<const TokenId>, const CallOptions&, Done<std::size_t> done) override {
    std::move(done)(Broken());
  }
  void Drop(const DropRequest&, const CallOptions&, Done<DropResult> done) override { std::move(done)(Broken()); }
  void Flush(const CallOptions&, DoneStatus done) override { std::move(done)(Broken()); }
  absl::StatusOr<StoreStats> Stats() override { return Broken(); }
  absl::StatusOr<std::vector<NamespaceInfo>> ListNamespaces() override { return Broken(); }

 private:
  static absl::Status Broken() { return absl::UnavailableError("the daemon is gone"); }
  bool opens_;
};

class GeneratorTest : public ::testing::Test {
 protected:
  GenerateResult Run(PrefixStore* store, std::span<const TokenId> prompt, const std::string& salt = "",
                     std::size_t new_tokens = 8) {
    StoreBinding binding;
    binding.store = store;
    binding.salt = salt;
    absl::StatusOr<GenerateResult> result = engine_.Generate(binding, prompt, new_tokens);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? *std::move(result) : GenerateResult();
  }

  ScratchFolder folder_;
  TinyEngine engine_{folder_ / "tiny.gguf", TinyGgufOptions{}};
};

TEST_F(GeneratorTest, WarmRunEqualsColdRunAndComputesOnlyTheRest) {
  auto store = OpenTinyStore(folder_ / "store");
  const std::vector<TokenId> prompt = engine_.Prompt(5 * kBlock + 3);
  const GenerateResult alone = Run(nullptr, prompt);
  const GenerateResult cold = Run(store.get(), prompt);
  const GenerateResult warm = Run(store.get(), prompt);
  EXPECT_EQ(cold.cached_tokens, 0u);
  EXPECT_GE(cold.stored_blocks, 5u);
  EXPECT_EQ(warm.cached_tokens, 5 * kBlock);
  EXPECT_EQ(warm.cached_from_dram, 5 * kBlock);
  EXPECT_EQ(cold.tokens, alone.tokens);
  EXPECT_EQ(warm.tokens, alone.tokens);
  EXPECT_EQ(warm.store_error, "");
}

TEST_F(GeneratorTest, PrefixOfAnotherPromptIsReusedUpToTheFirstDifference) {
  auto store = OpenTinyStore(folder_ / "store");
  std::vector<TokenId> prompt = engine_.Prompt(6 * kBlock);
  Run(store.get(), prompt);
  prompt[4 * kBlock + 1] ^= 1;
  const GenerateResult warm = Run(store.get(), prompt);
  EXPECT_EQ(warm.cached_tokens, 4 * kBlock);
  EXPECT_EQ(warm.tokens, Run(nullptr, prompt).tokens);
}

TEST_F(GeneratorTest, NextTurnHitsTheGeneratedTokensToo) {
  auto store = OpenTinyStore(folder_ / "store");
  std::vector<TokenId> conversation = engine_.Prompt(kBlock + 5);
  const GenerateResult first = Run(store.get(), conversation, "", 2 * kBlock);
  conversation.insert(conversation.end(), first.tokens.begin(), first.tokens.end());
  const std::vector<TokenId> turn = engine_.Prompt(7, 2);
  conversation.insert(conversation.end(), turn.begin(), turn.end());
  ASSERT_GT(first.tokens.size(), kBlock) << "the tiny model stopped early; choose another seed";
  const GenerateResult second = Run(store.get(), conversation);
  EXPECT_GT(second.cached_tokens, kBlock);
  EXPECT_EQ(second.tokens, Run(nullptr, conversation).tokens);
}

TEST_F(GeneratorTest, OtherSaltMisses) {
  auto store = OpenTinyStore(folder_ / "store");
  const std::vector<TokenId> prompt = engine_.Prompt(3 * kBlock);
  Run(store.get(), prompt, "a");
  EXPECT_EQ(Run(store.get(), prompt, "b").cached_tokens, 0u);
  EXPECT_EQ(Run(store.get(), prompt, "a").cached_tokens, 2 * kBlock);
}

TEST_F(GeneratorTest, RestartHitsFromNvme) {
  const std::vector<TokenId> prompt = engine_.Prompt(4 * kBlock + 1);
  const std::vector<TokenId> cold = Run(OpenTinyStore(folder_ / "store").get(), prompt).tokens;
  auto store = OpenTinyStore(folder_ / "store");
  const GenerateResult warm = Run(store.get(), prompt);
  EXPECT_EQ(warm.cached_from_nvme, 4 * kBlock);
  EXPECT_EQ(warm.tokens, cold);
}

TEST_F(GeneratorTest, BitsFlippedOnDiskNeverReachTheOutput) {
  const std::vector<TokenId> prompt = engine_.Prompt(6 * kBlock + 1);
  const std::vector<TokenId> cold = Run(OpenTinyStore(folder_ / "store").get(), prompt).tokens;
  // Every 16 KiB one flipped bit: no record of this model is whole.
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_ / "store" + "/segments")) {
    if (!entry.is_regular_file()) continue;
    std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
    const auto size = static_cast<std::streamoff>(entry.file_size());
    for (std::streamoff at = 5000; at < size; at += 16384) {
      file.seekg(at);
      const int byte = file.get();
      file.seekp(at);
      file.put(static_cast<char>(byte ^ 0x10));
    }
  }
  auto store = OpenTinyStore(folder_ / "store");
  const GenerateResult warm = Run(store.get(), prompt);
  EXPECT_LT(warm.cached_tokens, 6 * kBlock);
  EXPECT_EQ(warm.tokens, cold);
  absl::StatusOr<StoreStats> stats = store->Stats();
  ASSERT_TRUE(stats.ok());
  EXPECT_GT(stats->corrupt_blocks, 0u);
}

TEST_F(GeneratorTest, FailingStoreCostsNothingButTheHit) {
  const std::vector<TokenId> prompt = engine_.Prompt(3 * kBlock + 1);
  const std::vector<TokenId> alone = Run(nullptr, prompt).tokens;
  for (bool opens : {false, true}) {
    BrokenStore store(opens);
    const GenerateResult result = Run(&store, prompt);
    EXPECT_EQ(result.tokens, alone);
    EXPECT_EQ(result.cached_tokens, 0u);
    EXPECT_EQ(result.stored_blocks, 0u);
    EXPECT_THAT(result.store_error, HasSubstr("daemon is gone"));
  }
}

TEST_F(GeneratorTest, ReadOnlyAndWriteOnlyBindings) {
  auto store = OpenTinyStore(folder_ / "store");
  const std::vector<TokenId> prompt = engine_.Prompt(3 * kBlock + 1);
  StoreBinding binding;
  binding.store = store.get();
  binding.write = false;
  EXPECT_EQ(engine_.Generate(binding, prompt)->stored_blocks, 0u);
  binding.write = true;
  binding.read = false;
  EXPECT_GE(engine_.Generate(binding, prompt)->stored_blocks, 3u);
  EXPECT_EQ(engine_.Generate(binding, prompt)->cached_tokens, 0u);
  binding.read = true;
  binding.write = false;
  EXPECT_EQ(engine_.Generate(binding, prompt)->cached_tokens, 3 * kBlock);
}

TEST_F(GeneratorTest, RefusesEmptyAndTooLongPromptsByName) {
  StoreBinding none;
  EXPECT_THAT(std::string(engine_.Generate(none, {}).status().message()), HasSubstr("no tokens"));
  const auto context = engine_.model().config().context;
  const absl::Status too_long = engine_.Generate(none, engine_.Prompt(context - 4), 8).status();
  EXPECT_EQ(too_long.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(too_long.message()), HasSubstr(std::to_string(context)));
  EXPECT_TRUE(engine_.Generate(none, engine_.Prompt(context - 8), 8).ok());
}

TEST_F(GeneratorTest, RefusesBlockSizesTheStoreCannotHave) {
  for (std::uint32_t block : {0u, 8u, 48u, 1024u}) {
    auto generator = Generator::Create(&engine_.model(), &engine_.tokenizer(), {}, {}, block, 64);
    EXPECT_EQ(generator.status().code(), absl::StatusCode::kInvalidArgument) << block;
  }
}

}  // namespace
}  // namespace kvist::engine
