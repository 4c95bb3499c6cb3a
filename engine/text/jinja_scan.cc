#include "engine/text/jinja_scan.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

namespace kvist::engine {
namespace {

constexpr std::string_view kSpaces = " \t\r\n";

using Kind = JinjaPart::Kind;

bool IsWordChar(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

// The literal that starts at text[at] (a quote); moves `at` past it. nullopt: no end, or an escape we do not know.
std::optional<std::string> ReadLiteral(std::string_view text, std::size_t& at) {
  const char quote = text[at++];
  std::string out;
  while (at < text.size() && text[at] != quote) {
    char c = text[at++];
    if (c == '\\') {
      if (at == text.size()) return std::nullopt;
      switch (text[at++]) {
        case 'n':
          c = '\n';
          break;
        case 't':
          c = '\t';
          break;
        case '\\':
          c = '\\';
          break;
        case '\'':
          c = '\'';
          break;
        case '"':
          c = '"';
          break;
        default:
          return std::nullopt;
      }
    }
    out += c;
  }
  if (at == text.size()) return std::nullopt;
  ++at;  // closing quote
  return out;
}

// A statement with one space between words, none elsewhere, and literals in single quotes.
std::optional<std::string> NormaliseStatement(std::string_view text) {
  std::string out;
  bool space = false;
  for (std::size_t at = 0; at < text.size();) {
    if (kSpaces.find(text[at]) != std::string_view::npos) {
      space = true;
      ++at;
      continue;
    }
    if (space && !out.empty() && IsWordChar(out.back()) && IsWordChar(text[at])) out += ' ';
    space = false;
    if (text[at] == '\'' || text[at] == '"') {
      const auto literal = ReadLiteral(text, at);
      if (!literal.has_value()) return std::nullopt;
      out.append("'").append(*literal).append("'");
    } else {
      out += text[at++];
    }
  }
  return out;
}

class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {
    if (text_.ends_with('\n')) text_.remove_suffix(1);  // Jinja drops one newline at the end of a template
  }

  std::optional<std::vector<JinjaPart>> Scan() {
    while (true) {
      const std::size_t open = NextTag();
      std::string_view before = text_.substr(at_, open - at_);
      const bool end = open == text_.size();
      TrimBefore(before, open, end);
      AddText(before);
      if (end) return std::move(parts_);
      if (!ScanTag(open)) return std::nullopt;
    }
  }

 private:
  std::size_t NextTag() const {
    for (std::size_t i = at_; i + 1 < text_.size(); ++i) {
      if (text_[i] == '{' && (text_[i + 1] == '{' || text_[i + 1] == '%' || text_[i + 1] == '#')) return i;
    }
    return text_.size();
  }

  void TrimBefore(std::string_view& before, std::size_t open, bool end) {
    if (trim_next_) before.remove_prefix(std::min(before.find_first_not_of(kSpaces), before.size()));
    if (newline_next_ && before.starts_with('\n')) before.remove_prefix(1);
    trim_next_ = newline_next_ = false;
    if (end) return;
    if (open + 2 < text_.size() && text_[open + 2] == '-') {
      before.remove_suffix(before.size() - std::min(before.find_last_not_of(kSpaces) + 1, before.size()));
    } else if (text_[open + 1] != '{') {
      // lstrip_blocks: blanks between the line's start and a block.
      const std::size_t last = before.find_last_not_of(" \t");
      const bool whole_line = last == std::string_view::npos ? at_ == 0 : before[last] == '\n';
      if (whole_line) before = before.substr(0, last == std::string_view::npos ? 0 : last + 1);
    }
  }

  bool ScanTag(std::size_t open) {
    const char kind = text_[open + 1];
    const std::string_view closing = kind == '{' ? "}}" : kind == '%' ? "%}" : "#}";
    std::size_t begin = open + 2;
    if (begin < text_.size() && text_[begin] == '-') ++begin;
    const std::size_t close = kind == '#' ? text_.find(closing, begin) : FindClosing(begin, closing);
    if (close == std::string_view::npos) return false;
    std::string_view inside = text_.substr(begin, close - begin);
    trim_next_ = inside.ends_with('-');
    if (trim_next_) inside.remove_suffix(1);
    newline_next_ = kind != '{';  // trim_blocks
    at_ = close + 2;
    if (kind == '#') return true;
    if (kind == '{') return ScanOutput(inside);
    auto statement = NormaliseStatement(inside);
    if (!statement.has_value()) return false;
    parts_.push_back({Kind::kStatement, *std::move(statement)});
    return true;
  }

  // `closing` outside string literals.
  std::size_t FindClosing(std::size_t from, std::string_view closing) const {
    char quote = 0;
    for (std::size_t i = from; i + 1 < text_.size(); ++i) {
      if (quote != 0) {
        if (text_[i] == '\\') {
          ++i;
        } else if (text_[i] == quote) {
          quote = 0;
        }
      } else if (text_[i] == '\'' || text_[i] == '"') {
        quote = text_[i];
      } else if (text_.substr(i, 2) == closing) {
        return i;
      }
    }
    return std::string_view::npos;
  }

  // operand + operand + ...
  bool ScanOutput(std::string_view inside) {
    static constexpr std::array<std::pair<std::string_view, Kind>, 6> kFields{{
        {"message['role']", Kind::kRole},
        {"message[\"role\"]", Kind::kRole},
        {"message.role", Kind::kRole},
        {"message['content']", Kind::kContent},
        {"message[\"content\"]", Kind::kContent},
        {"message.content", Kind::kContent},
    }};
    std::size_t at = 0;
    const auto skip = [&] {
      while (at < inside.size() && kSpaces.find(inside[at]) != std::string_view::npos) ++at;
    };
    while (true) {
      skip();
      if (at == inside.size()) return false;
      if (inside[at] == '\'' || inside[at] == '"') {
        const auto literal = ReadLiteral(inside, at);
        if (!literal.has_value()) return false;
        AddText(*literal);
      } else {
        bool found = false;
        for (const auto& [name, kind] : kFields) {
          if (!inside.substr(at).starts_with(name)) continue;
          at += name.size();
          parts_.push_back({kind, ""});
          found = true;
          break;
        }
        if (!found) return false;
      }
      skip();
      if (at == inside.size()) return true;
      if (inside[at++] != '+') return false;
    }
  }

  void AddText(std::string_view text) {
    if (text.empty()) return;
    if (parts_.empty() || parts_.back().kind != Kind::kText) parts_.push_back({Kind::kText, ""});
    parts_.back().text.append(text);
  }

  std::string_view text_;
  std::size_t at_ = 0;
  bool trim_next_ = false;     // the last tag ended with "-"
  bool newline_next_ = false;  // the last tag was a block: a newline right after it goes
  std::vector<JinjaPart> parts_;
};

}  // namespace

std::optional<std::vector<JinjaPart>> ScanJinja(std::string_view text) { return Scanner(text).Scan(); }

}  // namespace kvist::engine
