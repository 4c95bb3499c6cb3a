#include "engine/text/special_tokens.h"

namespace kvist::engine {
namespace {

std::uint64_t Edge(std::uint32_t node, char c) { return std::uint64_t{node} << 8 | static_cast<std::uint8_t>(c); }

}  // namespace

void SpecialTokens::Add(std::string_view text, TokenId token, bool always) {
  if (text.empty()) return;
  begins_[static_cast<std::uint8_t>(text[0])] = true;
  std::uint32_t node = 0;
  for (const char c : text) {
    const auto [edge, added] = edges_.try_emplace(Edge(node, c), static_cast<std::uint32_t>(nodes_.size()));
    if (added) nodes_.emplace_back();
    node = edge->second;
  }
  nodes_[node] = {token, always};
}

std::optional<SpecialTokens::Found> SpecialTokens::Next(std::string_view text, std::size_t from, bool plain) const {
  for (std::size_t at = from; at < text.size(); ++at) {
    if (!begins_[static_cast<std::uint8_t>(text[at])]) continue;
    if (const auto found = LongestAt(text, at, plain)) return found;
  }
  return std::nullopt;
}

std::optional<SpecialTokens::Found> SpecialTokens::LongestAt(std::string_view text, std::size_t at, bool plain) const {
  std::optional<Found> longest;
  std::uint32_t node = 0;
  for (std::size_t end = at; end < text.size(); ++end) {
    const auto edge = edges_.find(Edge(node, text[end]));
    if (edge == edges_.end()) break;
    node = edge->second;
    if (nodes_[node].token.has_value() && (!plain || nodes_[node].always)) {
      longest = Found{at, end + 1, *nodes_[node].token};
    }
  }
  return longest;
}

}  // namespace kvist::engine
