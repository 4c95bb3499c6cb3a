// Tokenizers from the GGUF file. Byte-level BPE ("gpt2" model) with the file's pre-tokenizer.
// Immutable after creation; any thread.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "cachestore/key/key_hasher.h"
#include "engine/model/gguf.h"

namespace kvist::engine {

struct EncodeOptions {
  bool parse_special = true;  // "<|im_start|>" in the text becomes its token; false: it is plain text
  bool add_bos = true;        // only where the file asks for it (tokenizer.ggml.add_bos_token)
};

class Tokenizer {
 public:
  // InvalidArgument names an unsupported tokenizer model or pre-tokenizer, or a malformed vocabulary.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> FromGguf(const GgufFile& file);
  virtual ~Tokenizer() = default;

  // Any bytes are accepted; invalid UTF-8 is encoded byte by byte.
  virtual std::vector<TokenId> Encode(std::string_view text, const EncodeOptions& options) const = 0;
  // Exact bytes of the tokens (may end within a UTF-8 character). Special tokens decode to nothing unless asked.
  virtual std::string Decode(std::span<const TokenId> tokens, bool with_special) const = 0;

  virtual std::size_t vocabulary_size() const = 0;
  virtual std::optional<TokenId> bos() const = 0;
  virtual bool IsEndOfGeneration(TokenId token) const = 0;  // EOS, <|im_end|> and their like
};

}  // namespace kvist::engine
