#include "engine/text/byte_alphabet.h"

#include <array>

#include "engine/text/utf8.h"

namespace kvist::engine {
namespace {

// Bytes that print stand for themselves; the others, in order, take the code points from U+0100 on.
constexpr bool Prints(unsigned byte) {
  return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

constexpr unsigned kFirstStandIn = 0x100;
constexpr unsigned kStandIns = 68;  // bytes that do not print
constexpr unsigned kAlphabetEnd = kFirstStandIn + kStandIns;

struct Alphabet {
  std::array<std::uint16_t, 256> code_of_byte{};
  std::array<std::int16_t, kAlphabetEnd> byte_of_code{};  // -1: none
};

constexpr Alphabet MakeAlphabet() {
  Alphabet alphabet;
  for (auto& byte : alphabet.byte_of_code) byte = -1;
  unsigned next = kFirstStandIn;
  for (unsigned byte = 0; byte < 256; ++byte) {
    const unsigned code = Prints(byte) ? byte : next++;
    alphabet.code_of_byte[byte] = static_cast<std::uint16_t>(code);
    alphabet.byte_of_code[code] = static_cast<std::int16_t>(byte);
  }
  return alphabet;
}

constexpr Alphabet kAlphabet = MakeAlphabet();

// Appends the bytes of `text`; false if a character is outside the alphabet (it is then appended as it is).
bool AppendBytes(std::string_view text, std::string& out) {
  bool all = true;
  while (!text.empty()) {
    const Utf8Char c = DecodeUtf8(text);
    if (c.valid && c.code < kAlphabetEnd && kAlphabet.byte_of_code[c.code] >= 0) {
      out += static_cast<char>(kAlphabet.byte_of_code[c.code]);
    } else {
      out.append(text.substr(0, c.bytes));
      all = false;
    }
    text.remove_prefix(c.bytes);
  }
  return all;
}

}  // namespace

std::string ByteToAlphabet(std::uint8_t byte) {
  const unsigned code = kAlphabet.code_of_byte[byte];
  if (code < 0x80) return std::string(1, static_cast<char>(code));
  return {static_cast<char>(0xc0 | (code >> 6)), static_cast<char>(0x80 | (code & 0x3f))};
}

std::string AlphabetToBytes(std::string_view text) {
  std::string out;
  AppendBytes(text, out);
  return out;
}

std::optional<std::string> AlphabetToBytesStrict(std::string_view text) {
  std::string out;
  if (!AppendBytes(text, out)) return std::nullopt;
  return out;
}

}  // namespace kvist::engine
