#include "tests/engine/tiny_engine.h"

#include <cstdlib>
#include <filesystem>
#include <iostream>

#include "gtest/gtest.h"

namespace kvist::engine {
namespace {

template <typename T>
T OrDie(absl::StatusOr<T> value) {
  if (!value.ok()) {
    std::cerr << value.status() << "\n";
    std::abort();
  }
  return *std::move(value);
}

}  // namespace

ScratchFolder::ScratchFolder() {
  std::string pattern = ::testing::TempDir() + "/kvist-test-XXXXXX";
  if (mkdtemp(pattern.data()) == nullptr) std::abort();
  path_ = pattern;
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

TinyEngine::TinyEngine(const std::string& gguf_path) { Load(gguf_path); }

TinyEngine::TinyEngine(const std::string& path, const TinyGgufOptions& options) {
  if (absl::Status written = WriteTinyGguf(path, options); !written.ok()) {
    std::cerr << written << "\n";
    std::abort();
  }
  Load(path);
}

void TinyEngine::Load(const std::string& path) {
  file_ = OrDie(GgufFile::Open(path));
  tokenizer_ = OrDie(Tokenizer::FromGguf(*file_));
  model_ = OrDie(Model::Load(file_, ModelOptions{.threads = 2}));
}

absl::StatusOr<GenerateResult> TinyEngine::Generate(const StoreBinding& binding, std::span<const TokenId> prompt,
                                                    std::size_t new_tokens) {
  auto generator = Generator::Create(model_.get(), tokenizer_.get(), file_->Fingerprint(), binding, kBlockTokens,
                                     prompt.size() + new_tokens);
  if (!generator.ok()) return generator.status();
  auto silent = [](auto&&...) {};
  return (*generator)->Generate(prompt, {.max_new_tokens = new_tokens, .sampling = {}}, {silent, silent});
}

std::vector<TokenId> TinyEngine::Prompt(std::size_t tokens, std::uint64_t seed) const {
  std::mt19937_64 random(seed);
  std::vector<TokenId> prompt(tokens);
  for (TokenId& token : prompt) token = kTinyFirstByteToken + static_cast<TokenId>(random() % 256);
  return prompt;
}

std::unique_ptr<LocalStore> OpenTinyStore(const std::string& directory, const Clock* clock) {
  LocalStoreOptions options;
  options.nvme.directory = directory;
  options.nvme.capacity_bytes = 64 << 20;
  options.nvme.segment_bytes = 4 << 20;
  options.dram_bytes = 32 << 20;
  options.clock = clock;
  return OrDie(LocalStore::Open(options));
}

}  // namespace kvist::engine
