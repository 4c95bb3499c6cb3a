#include "engine/text/pre_tokenizer.h"

#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include "absl/memory/memory.h"

namespace kvist::engine {
namespace {

// Unicode's White_Space, spelt out for use in a character class: PCRE2's own \s has U+180E too.
#define KVIST_SPACE R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})"

// The expressions below are the published ones (see the models' tokenizer.json), with \s spelt out and quantifiers
// made possessive where that changes nothing but the cost of backtracking.
constexpr std::string_view kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}++| ?\p{N}++| ?[^)" KVIST_SPACE R"(\p{L}\p{N}]++|[)" KVIST_SPACE
    R"(]+(?![^)" KVIST_SPACE R"(])|[)" KVIST_SPACE R"(]+)";
constexpr std::string_view kOneNumber = R"(\p{N})";
constexpr std::string_view kNumbers = R"(\p{N}++)";
constexpr std::string_view kThreeDigits = R"([0-9][0-9][0-9])";
constexpr std::string_view kPunctuation = R"([\p{P}$+<=>^~|]++)";

// Llama 3 and Qwen 2 differ in how many digits stand together.
#define KVIST_LLAMA3(NUMBERS)                                                                               \
  R"('(?:[sStTmMdD]|[rR][eE]|[vV][eE]|[lL][lL])|[^\r\n\p{L}\p{N}]?\p{L}++|)" NUMBERS R"(| ?[^)" KVIST_SPACE \
  R"(\p{L}\p{N}]++[\r\n]*+|[)" KVIST_SPACE R"(]*[\r\n]++|[)" KVIST_SPACE R"(]+(?![^)" KVIST_SPACE           \
  R"(])|[)" KVIST_SPACE R"(]+)"
constexpr std::string_view kLlama3 = KVIST_LLAMA3(R"(\p{N}{1,3})");
constexpr std::string_view kQwen2 = KVIST_LLAMA3(R"(\p{N})");
#undef KVIST_LLAMA3
#undef KVIST_SPACE

constexpr std::array kGpt2List{kGpt2};
constexpr std::array kSmollmList{kOneNumber, kGpt2};
constexpr std::array kDefaultList{kPunctuation, kGpt2, kNumbers, kThreeDigits};
constexpr std::array kLlama3List{kLlama3};
constexpr std::array kQwen2List{kQwen2};

struct Known {
  std::string_view name;
  std::span<const std::string_view> expressions;
  bool llama3 = false;  // ignores merges, adds BOS
};

constexpr std::array kKnown{
    Known{"smollm", kSmollmList},
    Known{"default", kDefaultList},
    Known{"gpt-2", kGpt2List},
    Known{"starcoder", kSmollmList},
    Known{"refact", kSmollmList},
    Known{"command-r", kSmollmList},
    Known{"llama-bpe", kLlama3List, true},
    Known{"llama3", kLlama3List, true},
    Known{"llama-v3", kLlama3List, true},
    Known{"qwen2", kQwen2List},
    Known{"stablelm2", kQwen2List},
    Known{"deepseek-r1-qwen", kQwen2List},
};

}  // namespace

// One compiled expression.
class PreTokenizer::Expression {
 public:
  static absl::StatusOr<std::unique_ptr<Expression>> Compile(std::string_view pattern) {
    int error = 0;
    PCRE2_SIZE at = 0;
    pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                     PCRE2_UTF | PCRE2_UCP, &error, &at, nullptr);
    if (code == nullptr) {
      return absl::InternalError(
          fmt::format("PCRE2 refuses the pre-tokenizer's expression at {}: error {} ({})", at, error, pattern));
    }
    pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // without JIT (hardened kernels) pcre2_match interprets: same result
    return absl::WrapUnique(new Expression(code));  // private constructor
  }
  ~Expression() {
    pcre2_match_context_free(limits_);
    pcre2_code_free(code_);
  }
  Expression(const Expression&) = delete;
  Expression& operator=(const Expression&) = delete;

  // Appends `text`'s matches and the gaps between them.
  void Split(std::string_view text, pcre2_match_data* match, std::vector<std::string_view>& out) const {
    const auto subject = reinterpret_cast<PCRE2_SPTR>(text.data());
    const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(match);
    std::size_t done = 0;
    while (done < text.size()) {
      const int found = Match(subject, text.size(), done, match);
      // No match, or PCRE2 gave up: the rest is one piece, which BPE encodes to the same bytes.
      if (found < 0 || ends[1] <= ends[0]) break;
      if (ends[0] > done) out.push_back(text.substr(done, ends[0] - done));
      out.push_back(text.substr(ends[0], ends[1] - ends[0]));
      done = ends[1];
    }
    if (done < text.size()) out.push_back(text.substr(done));
  }

 private:
  explicit Expression(pcre2_code* code) : code_(code), limits_(pcre2_match_context_create(nullptr)) {
    // PCRE2 counts backtracking steps against a default limit of 10 million, which a run of as many spaces would
    // reach. These expressions backtrack at most once per character, so their time is linear without a limit.
    if (limits_ != nullptr) pcre2_set_match_limit(limits_, std::numeric_limits<std::uint32_t>::max());
  }

  int Match(PCRE2_SPTR subject, std::size_t size, std::size_t from, pcre2_match_data* match) const {
    // The caller has checked the text: PCRE2 must not check it again from every start.
    const int found = pcre2_match(code_, subject, size, from, PCRE2_NO_UTF_CHECK, match, limits_);
    if (found != PCRE2_ERROR_JIT_STACKLIMIT) return found;
    return pcre2_match(code_, subject, size, from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, match, limits_);
  }

  pcre2_code* code_;
  pcre2_match_context* limits_;
};

PreTokenizer::PreTokenizer() = default;
PreTokenizer::~PreTokenizer() = default;

absl::StatusOr<std::unique_ptr<PreTokenizer>> PreTokenizer::Create(std::string_view name) {
  for (const Known& known : kKnown) {
    if (known.name != name) continue;
    auto result = absl::WrapUnique(new PreTokenizer);  // private constructor
    for (const std::string_view pattern : known.expressions) {
      absl::StatusOr<std::unique_ptr<Expression>> expression = Expression::Compile(pattern);
      if (!expression.ok()) return expression.status();
      result->expressions_.push_back(*std::move(expression));
    }
    result->ignores_merges_ = known.llama3;
    result->adds_bos_by_default_ = known.llama3;
    return result;
  }
  std::string names;
  for (const Known& known : kKnown) names += fmt::format("{}{}", names.empty() ? "" : ", ", known.name);
  return absl::InvalidArgumentError(
      fmt::format("the pre-tokenizer \"{}\" (tokenizer.ggml.pre) is not supported; supported are {}", name, names));
}

void PreTokenizer::Split(std::string_view text, std::vector<std::string_view>& pieces) const {
  pieces.clear();
  if (text.empty()) return;
  pieces.push_back(text);
  // Scratch for one call: PCRE2 match data must not be shared between threads.
  const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> match(pcre2_match_data_create(1, nullptr),
                                                                                  &pcre2_match_data_free);
  if (match == nullptr) return;  // out of memory: one piece
  std::vector<std::string_view> next;
  for (const auto& expression : expressions_) {
    next.clear();
    for (const std::string_view piece : pieces) expression->Split(piece, match.get(), next);
    pieces.swap(next);
  }
}

}  // namespace kvist::engine
