// Utf8Stream: turns token bytes into text that never ends inside a UTF-8 character, so that a stream's reader sees
// whole characters only. Bytes that can't become a character are passed on as they are.
// Not thread-safe.
#pragma once

#include <string>
#include <string_view>

namespace kvist::engine {

class Utf8Stream {
 public:
  // Adds bytes; returns what is complete now.
  std::string Push(std::string_view bytes);
  // What was held back; call at the end.
  std::string Finish();

 private:
  std::string held_;  // an unfinished character: at most 3 bytes
};

}  // namespace kvist::engine
