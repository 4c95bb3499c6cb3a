// Breaks a Jinja chat template into statements and output, far enough to recognise the simple ones.
// Whitespace is handled as Hugging Face's renderer sets it (trim_blocks, lstrip_blocks). Pure; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kvist::engine {

struct JinjaPart {
  enum class Kind {
    kStatement,  // {% text %}: spaces outside literals squeezed, literals in single quotes
    kText,       // output as it is; neighbours are joined
    kRole,       // output of message['role'] or message.role
    kContent,    // output of message['content'] or message.content
  };
  Kind kind = Kind::kText;
  std::string text;

  friend bool operator==(const JinjaPart&, const JinjaPart&) = default;
};

// nullopt: malformed, or output other than literals, role and content joined with "+".
std::optional<std::vector<JinjaPart>> ScanJinja(std::string_view text);

}  // namespace kvist::engine
