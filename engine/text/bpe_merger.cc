#include "engine/text/bpe_merger.h"

#include <fmt/format.h>

#include <algorithm>
#include <queue>
#include <utility>

#include "engine/text/byte_alphabet.h"

namespace kvist::engine {
namespace {

// Up to this many bytes, scanning all pairs for the best beats a queue; nearly all words are shorter. Bytes.
constexpr std::size_t kShortPieceBytes = 64;

}  // namespace

// Numbers the texts of tokens and merges.
class BpeMerger::Builder {
 public:
  Builder(BpeMerger* merger, std::span<const std::string> tokens, const std::vector<bool>& mergeable)
      : merger_(merger) {
    merger_->vocabulary_size_ = static_cast<std::uint32_t>(tokens.size());
    symbols_.reserve(tokens.size());
    for (std::size_t id = 0; id < tokens.size(); ++id) {
      // Of two tokens with one text the later counts, as in other readers of these files.
      if (mergeable[id]) symbols_[tokens[id]] = static_cast<Symbol>(id);
    }
  }

  Symbol SymbolOf(std::string text) {
    const auto it = symbols_.find(text);
    if (it != symbols_.end()) return it->second;
    merger_->tokenless_.push_back(AlphabetToBytes(text));
    const auto symbol = static_cast<Symbol>(merger_->vocabulary_size_ + merger_->tokenless_.size() - 1);
    symbols_.emplace(std::move(text), symbol);
    return symbol;
  }

 private:
  BpeMerger* merger_;
  absl::flat_hash_map<std::string, Symbol> symbols_;
};

absl::StatusOr<BpeMerger> BpeMerger::Create(std::span<const std::string> tokens, const std::vector<bool>& mergeable,
                                            std::span<const std::string> merges) {
  BpeMerger merger;
  Builder builder(&merger, tokens, mergeable);
  for (unsigned byte = 0; byte < 256; ++byte) {
    merger.byte_symbols_[byte] = builder.SymbolOf(ByteToAlphabet(static_cast<std::uint8_t>(byte)));
  }
  merger.merges_.reserve(merges.size());
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    const std::string& merge = merges[rank];
    const std::size_t space = merge.find(' ', 1);
    if (space == std::string::npos || space + 1 == merge.size()) {
      return absl::InvalidArgumentError(fmt::format(
          "merge {} of the vocabulary (tokenizer.ggml.merges) is not two texts with a space between", rank));
    }
    const Symbol left = builder.SymbolOf(merge.substr(0, space));
    const Symbol right = builder.SymbolOf(merge.substr(space + 1));
    const Symbol result = builder.SymbolOf(merge.substr(0, space) + merge.substr(space + 1));
    merger.merges_.emplace(std::uint64_t{left} << 32 | right, Merge{static_cast<std::uint32_t>(rank), result});
  }
  return merger;
}

std::optional<TokenId> BpeMerger::ByteToken(std::uint8_t byte) const {
  const Symbol symbol = byte_symbols_[byte];
  if (symbol >= vocabulary_size_) return std::nullopt;
  return symbol;
}

BpeMerger::Merge BpeMerger::Find(Symbol left, Symbol right) const {
  const auto it = merges_.find(std::uint64_t{left} << 32 | right);
  return it == merges_.end() ? Merge{} : it->second;
}

void BpeMerger::Append(Symbol symbol, std::vector<TokenId>& out) const {
  if (symbol < vocabulary_size_) {
    out.push_back(symbol);
    return;
  }
  for (const char c : tokenless_[symbol - vocabulary_size_]) {
    if (const auto token = ByteToken(static_cast<std::uint8_t>(c))) out.push_back(*token);
  }
}

void BpeMerger::Encode(std::string_view piece, std::vector<TokenId>& out) const {
  if (piece.size() <= kShortPieceBytes) {
    EncodeShort(piece, out);
  } else {
    EncodeLong(piece, out);
  }
}

void BpeMerger::EncodeShort(std::string_view piece, std::vector<TokenId>& out) const {
  std::array<Symbol, kShortPieceBytes> symbols{};
  std::array<Merge, kShortPieceBytes> merges{};  // merges[i]: of symbols i and i + 1
  std::size_t count = piece.size();
  for (std::size_t i = 0; i < count; ++i) symbols[i] = byte_symbols_[static_cast<std::uint8_t>(piece[i])];
  for (std::size_t i = 0; i + 1 < count; ++i) merges[i] = Find(symbols[i], symbols[i + 1]);
  while (count > 1) {
    std::size_t best = 0;
    for (std::size_t i = 1; i + 1 < count; ++i) {
      if (merges[i].rank < merges[best].rank) best = i;
    }
    if (merges[best].rank == kNoRank) break;
    symbols[best] = merges[best].result;
    // Close the gap at best + 1.
    std::copy(symbols.begin() + best + 2, symbols.begin() + count, symbols.begin() + best + 1);
    std::copy(merges.begin() + best + 1, merges.begin() + count - 1, merges.begin() + best);
    --count;
    if (best > 0) merges[best - 1] = Find(symbols[best - 1], symbols[best]);
    if (best + 1 < count) merges[best] = Find(symbols[best], symbols[best + 1]);
  }
  for (std::size_t i = 0; i < count; ++i) Append(symbols[i], out);
}

// Piece of n bytes in O(n log n): a linked list of symbols and a queue of candidate merges, stale ones skipped.
void BpeMerger::EncodeLong(std::string_view piece, std::vector<TokenId>& out) const {
  constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();
  struct Node {
    Symbol symbol = 0;
    std::size_t previous = kNone;
    std::size_t next = kNone;
    bool alive = true;
  };
  struct Candidate {
    std::uint32_t rank = 0;
    std::size_t left = 0;  // node
    Symbol left_symbol = 0, right_symbol = 0, result = 0;
    bool operator<(const Candidate& other) const {  // the queue's top is its largest: lowest rank, then leftmost
      return rank != other.rank ? rank > other.rank : left > other.left;
    }
  };
  std::vector<Node> nodes(piece.size());
  std::priority_queue<Candidate> queue;
  const auto consider = [&](std::size_t left) {
    if (left == kNone || nodes[left].next == kNone) return;
    const Symbol a = nodes[left].symbol, b = nodes[nodes[left].next].symbol;
    const Merge merge = Find(a, b);
    if (merge.rank != kNoRank) queue.push({merge.rank, left, a, b, merge.result});
  };
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    nodes[i].symbol = byte_symbols_[static_cast<std::uint8_t>(piece[i])];
    nodes[i].previous = i == 0 ? kNone : i - 1;
    nodes[i].next = i + 1 == nodes.size() ? kNone : i + 1;
  }
  for (std::size_t i = 0; i < nodes.size(); ++i) consider(i);
  while (!queue.empty()) {
    const Candidate top = queue.top();
    queue.pop();
    Node& left = nodes[top.left];
    if (!left.alive || left.symbol != top.left_symbol || left.next == kNone) continue;
    Node& right = nodes[left.next];
    if (right.symbol != top.right_symbol) continue;
    left.symbol = top.result;
    right.alive = false;
    left.next = right.next;
    if (left.next != kNone) nodes[left.next].previous = top.left;
    consider(left.previous);
    consider(top.left);
  }
  for (std::size_t i = 0; i != kNone && i < nodes.size(); i = nodes[i].next) Append(nodes[i].symbol, out);
}

}  // namespace kvist::engine
