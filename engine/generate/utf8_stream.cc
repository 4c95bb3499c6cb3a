#include "engine/generate/utf8_stream.h"

#include <cstddef>
#include <utility>

namespace kvist::engine {
namespace {

// Bytes a character takes, by its first byte; 0 for a byte that starts none.
std::size_t LengthFromLead(unsigned char lead) {
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead < 0xE0) return 2;
  if (lead >= 0xE0 && lead < 0xF0) return 3;
  if (lead >= 0xF0 && lead < 0xF5) return 4;
  return 0;
}

bool IsContinuation(unsigned char byte) { return (byte & 0xC0) == 0x80; }

// Length of the unfinished character at the end of `text`; 0 if it ends on a border.
std::size_t UnfinishedTail(std::string_view text) {
  for (std::size_t back = 1; back <= 3 && back <= text.size(); ++back) {
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if (IsContinuation(byte)) continue;
    return LengthFromLead(byte) > back ? back : 0;
  }
  return 0;
}

}  // namespace

std::string Utf8Stream::Push(std::string_view bytes) {
  held_.append(bytes);
  const std::size_t tail = UnfinishedTail(held_);
  std::string complete = held_.substr(0, held_.size() - tail);
  held_.erase(0, held_.size() - tail);
  return complete;
}

std::string Utf8Stream::Finish() { return std::exchange(held_, std::string()); }

}  // namespace kvist::engine
