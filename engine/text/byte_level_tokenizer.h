// The byte-level BPE tokenizer ("gpt2" in GGUF): special tokens first, then the pre-tokenizer's pieces, then merges.
// Immutable after creation; any thread.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "engine/model/gguf.h"
#include "engine/text/bpe_merger.h"
#include "engine/text/pre_tokenizer.h"
#include "engine/text/special_tokens.h"
#include "engine/text/tokenizer.h"

namespace kvist::engine {

class ByteLevelTokenizer : public Tokenizer {
 public:
  static absl::StatusOr<std::unique_ptr<Tokenizer>> FromGguf(const GgufFile& file);

  std::vector<TokenId> Encode(std::string_view text, const EncodeOptions& options) const override;
  std::string Decode(std::span<const TokenId> tokens, bool with_special) const override;
  std::size_t vocabulary_size() const override { return tokens_.size(); }
  std::optional<TokenId> bos() const override { return bos_; }
  bool IsEndOfGeneration(TokenId token) const override { return token < tokens_.size() && tokens_[token].ends; }

 private:
  struct Token {
    std::string bytes;     // what it decodes to
    bool special = false;  // control or unknown: decodes to nothing unless asked
    bool ends = false;     // end of generation
  };

  ByteLevelTokenizer() = default;
  absl::Status LoadVocabulary(const GgufFile& file);
  absl::Status LoadSpecialIds(const GgufFile& file);
  void EncodePlain(std::string_view text, std::vector<TokenId>& out) const;
  void EncodeInvalidByte(std::uint8_t byte, std::vector<TokenId>& out) const;

  std::vector<Token> tokens_;
  std::unique_ptr<PreTokenizer> pre_tokenizer_;
  BpeMerger merger_;
  SpecialTokens special_;
  absl::flat_hash_map<std::string, TokenId> words_;  // bytes -> token; filled only where words skip the merges
  std::optional<TokenId> bos_;
  bool add_bos_ = false;
};

}  // namespace kvist::engine
