// GPT-2's alphabet of printable stand-ins for the 256 bytes: vocabularies of byte-level BPE are written in it, so that
// a space is "Ġ" (U+0120) and a newline "Ċ" (U+010A). Pure; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace kvist::engine {

// The stand-in of a byte, as UTF-8.
std::string ByteToAlphabet(std::uint8_t byte);

// `text` with stand-ins turned back into their bytes. Characters outside the alphabet stay as they are.
std::string AlphabetToBytes(std::string_view text);

// As above, but nullopt if a character is outside the alphabet: then no bytes of a prompt can spell the token.
std::optional<std::string> AlphabetToBytesStrict(std::string_view text);

}  // namespace kvist::engine
