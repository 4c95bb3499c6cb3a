// Chat templates. The file's Jinja template is recognised, not interpreted: an unknown one is a clear error.
#pragma once

#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "engine/model/gguf.h"

namespace kvist::engine {

struct ChatMessage {
  std::string role;  // "system", "user", "assistant"
  std::string content;
};

class ChatTemplate {
 public:
  // InvalidArgument if the file has no template or one that is not ChatML.
  static absl::StatusOr<ChatTemplate> FromGguf(const GgufFile& file);
  // The prompt up to where the assistant's answer begins; exactly what the file's own template would render,
  // its default system message included.
  std::string Render(std::span<const ChatMessage> messages) const;

 private:
  std::string default_system_;  // empty: the template adds none
};

}  // namespace kvist::engine
