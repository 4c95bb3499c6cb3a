// A tiny model with its tokenizer, written, loaded and ready to generate. For tests; aborts where set-up fails.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "cachestore/local_store.h"
#include "engine/generate/generator.h"
#include "engine/model/gguf.h"
#include "engine/model/model.h"
#include "engine/text/tokenizer.h"
#include "tests/engine/tiny_gguf.h"

namespace kvist::engine {

// A new empty folder under the test's temporary directory, removed with all it holds.
class ScratchFolder {
 public:
  ScratchFolder();
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

class TinyEngine {
 public:
  explicit TinyEngine(const std::string& gguf_path);
  // Writes the model to `path` first.
  TinyEngine(const std::string& path, const TinyGgufOptions& options);

  static constexpr std::uint32_t kBlockTokens = 16;

  // One answer of `new_tokens` tokens, greedy.
  absl::StatusOr<GenerateResult> Generate(const StoreBinding& binding, std::span<const TokenId> prompt,
                                          std::size_t new_tokens = 8);
  // Random but fixed ordinary tokens.
  std::vector<TokenId> Prompt(std::size_t tokens, std::uint64_t seed = 1) const;

  Model& model() { return *model_; }
  const Tokenizer& tokenizer() const { return *tokenizer_; }

 private:
  void Load(const std::string& path);

  std::shared_ptr<const GgufFile> file_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

// An embedded store in `directory`, sized for tests.
std::unique_ptr<LocalStore> OpenTinyStore(const std::string& directory, const Clock* clock = nullptr);

}  // namespace kvist::engine
