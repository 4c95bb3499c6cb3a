// Splits text into the pieces that BPE works on, with the regular expressions that the file's tokenizer.ggml.pre
// names. Each expression splits every piece the one before left: its matches and the gaps between them.
// Immutable after creation; any thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace kvist::engine {

class PreTokenizer {
 public:
  // InvalidArgument names an unknown pre-tokenizer and the known ones.
  static absl::StatusOr<std::unique_ptr<PreTokenizer>> Create(std::string_view name);
  ~PreTokenizer();
  PreTokenizer(const PreTokenizer&) = delete;
  PreTokenizer& operator=(const PreTokenizer&) = delete;

  // Pieces of `text` in order; together they are `text`. It must be valid UTF-8. `pieces` is overwritten.
  void Split(std::string_view text, std::vector<std::string_view>& pieces) const;

  // Words that are tokens as they are skip the merges (Llama 3).
  bool ignores_merges() const { return ignores_merges_; }
  // Whether a file that does not say adds BOS.
  bool adds_bos_by_default() const { return adds_bos_by_default_; }

 private:
  class Expression;
  PreTokenizer();

  std::vector<std::unique_ptr<Expression>> expressions_;
  bool ignores_merges_ = false;
  bool adds_bos_by_default_ = false;
};

}  // namespace kvist::engine
