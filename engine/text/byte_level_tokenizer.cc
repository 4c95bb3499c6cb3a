#include "engine/text/byte_level_tokenizer.h"

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <utility>

#include "absl/memory/memory.h"
#include "engine/text/byte_alphabet.h"
#include "engine/text/utf8.h"

namespace kvist::engine {
namespace {

// tokenizer.ggml.token_type, as numbered in the file.
constexpr std::int64_t kUnknown = 2;
constexpr std::int64_t kControl = 3;
constexpr std::int64_t kUserDefined = 4;

// Special tokens that end an answer in the model families that use byte-level BPE. Files name only one as EOS.
constexpr std::array<std::string_view, 9> kEndTexts{"<|endoftext|>", "<|im_end|>", "<|eot_id|>",
                                                    "<|eom_id|>",    "<|eot|>",    "<|end_of_text|>",
                                                    "<|end|>",       "<|return|>", "<|endofturn|>"};

constexpr std::string_view kReplacement = "\xef\xbf\xbd";  // U+FFFD

absl::StatusOr<std::shared_ptr<const GgufArray>> Strings(const GgufFile& file, std::string_view key) {
  absl::StatusOr<std::shared_ptr<const GgufArray>> array = file.Array(key);
  if (!array.ok()) {
    return absl::InvalidArgumentError(fmt::format("vocabulary: {}", std::string(array.status().message())));
  }
  if ((*array)->strings.size() != (*array)->size) {
    return absl::InvalidArgumentError(fmt::format("vocabulary: metadata key \"{}\" is not an array of strings", key));
  }
  return array;
}

// The token id under `key`: nullopt if the file has none.
absl::StatusOr<std::optional<TokenId>> IdOf(const GgufFile& file, std::string_view key, std::size_t vocabulary) {
  if (file.Find(key) == nullptr) return std::optional<TokenId>();
  const absl::StatusOr<std::uint64_t> id = file.U64(key);
  if (!id.ok()) return id.status();
  if (*id >= vocabulary) {
    return absl::InvalidArgumentError(
        fmt::format("vocabulary: {} is {}, but there are only {} tokens", key, *id, vocabulary));
  }
  return std::optional<TokenId>(static_cast<TokenId>(*id));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::FromGguf(const GgufFile& file) {
  const absl::StatusOr<std::string> model = file.String("tokenizer.ggml.model");
  if (!model.ok()) return absl::InvalidArgumentError(std::string(model.status().message()));
  if (*model == "gpt2") return ByteLevelTokenizer::FromGguf(file);
  return absl::InvalidArgumentError(fmt::format(
      "the tokenizer \"{}\" (tokenizer.ggml.model) is not supported; supported is \"gpt2\", byte-level BPE", *model));
}

absl::StatusOr<std::unique_ptr<Tokenizer>> ByteLevelTokenizer::FromGguf(const GgufFile& file) {
  auto tokenizer = absl::WrapUnique(new ByteLevelTokenizer);  // private constructor
  const absl::StatusOr<std::string> pre = file.String("tokenizer.ggml.pre");
  if (!pre.ok()) {
    // Guessing one would give other tokens than the model was trained with, silently.
    return absl::InvalidArgumentError(
        fmt::format("{}: the pre-tokenizer is not known; convert the model again with a current converter",
                    std::string(pre.status().message())));
  }
  absl::StatusOr<std::unique_ptr<PreTokenizer>> pre_tokenizer = PreTokenizer::Create(*pre);
  if (!pre_tokenizer.ok()) return pre_tokenizer.status();
  tokenizer->pre_tokenizer_ = *std::move(pre_tokenizer);
  if (absl::Status status = tokenizer->LoadVocabulary(file); !status.ok()) return status;
  if (absl::Status status = tokenizer->LoadSpecialIds(file); !status.ok()) return status;
  return tokenizer;
}

absl::Status ByteLevelTokenizer::LoadVocabulary(const GgufFile& file) {
  const auto texts = Strings(file, "tokenizer.ggml.tokens");
  if (!texts.ok()) return texts.status();
  const auto merges = Strings(file, "tokenizer.ggml.merges");
  if (!merges.ok()) return merges.status();
  const std::size_t size = (*texts)->size;
  if (size == 0) return absl::InvalidArgumentError("vocabulary: tokenizer.ggml.tokens is empty");

  std::shared_ptr<const GgufArray> types;  // null: all are normal
  if (file.Find("tokenizer.ggml.token_type") != nullptr) {
    const auto array = file.Array("tokenizer.ggml.token_type");
    if (!array.ok()) return array.status();
    types = *array;
    if (types->integers.size() != size) {
      return absl::InvalidArgumentError(fmt::format(
          "vocabulary: tokenizer.ggml.token_type has {} integers for {} tokens", types->integers.size(), size));
    }
  }
  tokens_.resize(size);
  std::vector<bool> mergeable(size, true);
  for (std::size_t id = 0; id < size; ++id) {
    const std::string& text = (*texts)->strings[id];
    const std::int64_t type = types == nullptr ? 1 : types->integers[id];
    if (type == kUnknown || type == kControl || type == kUserDefined) {
      mergeable[id] = false;
      tokens_[id] = {text, type != kUserDefined, false};
      special_.Add(text, static_cast<TokenId>(id), type == kUserDefined);
    } else {
      tokens_[id].bytes = AlphabetToBytes(text);
      if (pre_tokenizer_->ignores_merges()) {
        if (auto bytes = AlphabetToBytesStrict(text)) words_[*std::move(bytes)] = static_cast<TokenId>(id);
      }
    }
  }
  absl::StatusOr<BpeMerger> merger = BpeMerger::Create((*texts)->strings, mergeable, (*merges)->strings);
  if (!merger.ok()) return merger.status();
  merger_ = *std::move(merger);
  return absl::OkStatus();
}

absl::Status ByteLevelTokenizer::LoadSpecialIds(const GgufFile& file) {
  for (const std::string_view key :
       {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"}) {
    const auto id = IdOf(file, key, tokens_.size());
    if (!id.ok()) return id.status();
    if (id->has_value()) tokens_[**id].ends = true;
  }
  for (Token& token : tokens_) {
    if (!token.special) continue;
    for (const std::string_view text : kEndTexts) token.ends = token.ends || token.bytes == text;
  }
  const auto bos = IdOf(file, "tokenizer.ggml.bos_token_id", tokens_.size());
  if (!bos.ok()) return bos.status();
  bos_ = *bos;
  add_bos_ = pre_tokenizer_->adds_bos_by_default() && bos_.has_value();
  if (file.Find("tokenizer.ggml.add_bos_token") != nullptr) {
    const absl::StatusOr<bool> add = file.Bool("tokenizer.ggml.add_bos_token");
    if (!add.ok()) return add.status();
    add_bos_ = *add;
  }
  if (add_bos_ && !bos_.has_value()) {
    return absl::InvalidArgumentError(
        "vocabulary: tokenizer.ggml.add_bos_token is true, but there is no tokenizer.ggml.bos_token_id");
  }
  return absl::OkStatus();
}

std::vector<TokenId> ByteLevelTokenizer::Encode(std::string_view text, const EncodeOptions& options) const {
  std::vector<TokenId> out;
  out.reserve(text.size() / 4 + 8);  // about four bytes a token in English
  if (options.add_bos && add_bos_) out.push_back(*bos_);
  std::size_t done = 0;
  while (const auto found = special_.Next(text, done, !options.parse_special)) {
    EncodePlain(text.substr(done, found->begin - done), out);
    out.push_back(found->token);
    done = found->end;
  }
  EncodePlain(text.substr(done), out);
  return out;
}

void ByteLevelTokenizer::EncodePlain(std::string_view text, std::vector<TokenId>& out) const {
  std::vector<std::string_view> pieces;
  while (!text.empty()) {
    const std::size_t valid = ValidUtf8Prefix(text);
    pre_tokenizer_->Split(text.substr(0, valid), pieces);
    for (const std::string_view piece : pieces) {
      if (pre_tokenizer_->ignores_merges()) {
        if (const auto word = words_.find(std::string(piece)); word != words_.end()) {
          out.push_back(word->second);
          continue;
        }
      }
      merger_.Encode(piece, out);
    }
    text.remove_prefix(valid);
    if (text.empty()) break;
    EncodeInvalidByte(static_cast<std::uint8_t>(text[0]), out);
    text.remove_prefix(1);
  }
}

void ByteLevelTokenizer::EncodeInvalidByte(std::uint8_t byte, std::vector<TokenId>& out) const {
  if (const auto token = merger_.ByteToken(byte)) {
    out.push_back(*token);
  } else {
    merger_.Encode(kReplacement, out);  // the vocabulary cannot spell it
  }
}

std::string ByteLevelTokenizer::Decode(std::span<const TokenId> tokens, bool with_special) const {
  std::string out;
  for (const TokenId id : tokens) {
    if (id >= tokens_.size() || (tokens_[id].special && !with_special)) continue;
    out += tokens_[id].bytes;
  }
  return out;
}

}  // namespace kvist::engine
