// Strict UTF-8 (no overlong forms, no surrogates, nothing past U+10FFFF), one character at a time. Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace kvist::engine {

struct Utf8Char {
  std::uint32_t code = 0;
  std::size_t bytes = 1;
  bool valid = false;  // false: the first byte begins no character; `bytes` is 1
};

// The character at the start of `text`, which must not be empty.
Utf8Char DecodeUtf8(std::string_view text);

// Length of the longest valid prefix of `text`, bytes.
std::size_t ValidUtf8Prefix(std::string_view text);

}  // namespace kvist::engine
