#include "engine/text/chat_template.h"

#include <fmt/format.h>

#include <cstddef>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/text/jinja_scan.h"

namespace kvist::engine {
namespace {

using Kind = JinjaPart::Kind;

constexpr std::string_view kStart = "<|im_start|>";
constexpr std::string_view kEnd = "<|im_end|>\n";
constexpr std::string_view kSystemHead = "<|im_start|>system\n";
constexpr std::string_view kAssistantHead = "<|im_start|>assistant\n";

// Walks the parts of a template against the shapes ChatML comes in.
class ChatMlMatcher {
 public:
  explicit ChatMlMatcher(std::vector<JinjaPart> parts) : parts_(std::move(parts)) {}

  // The default system message ("" if none), or nullopt if this is no ChatML.
  std::optional<std::string> Match() {
    // Templates made for renderers that may not define it. We always ask for the assistant's turn.
    if (Statement("if not add_generation_prompt is defined") &&
        !(Statement("set add_generation_prompt=false") && Statement("endif"))) {
      return std::nullopt;
    }
    if (!Statement("for message in messages")) return std::nullopt;
    std::string default_system;
    if (Statement("if loop.first and messages[0]['role']!='system'")) {
      const auto text = Text();
      if (!text.has_value() || !text->starts_with(kSystemHead) || !text->ends_with(kEnd) || !Statement("endif")) {
        return std::nullopt;
      }
      default_system = text->substr(kSystemHead.size(), text->size() - kSystemHead.size() - kEnd.size());
      if (default_system.empty()) return std::nullopt;  // an empty turn is not the same as none
    }
    if (!MatchTurn() || !Statement("endfor")) return std::nullopt;
    if (!Statement("if add_generation_prompt") || Text() != kAssistantHead || !Statement("endif")) return std::nullopt;
    if (at_ != parts_.size()) return std::nullopt;
    return default_system;
  }

 private:
  bool MatchTurn() {
    if (Text() != kStart || !Take(Kind::kRole) || Text() != "\n" || !Take(Kind::kContent)) return false;
    // Qwen's first templates leave the last turn open, unless the assistant's follows: with it, no difference.
    if (Statement("if(loop.last and add_generation_prompt)or not loop.last")) {
      return Text() == kEnd && Statement("endif");
    }
    return Text() == kEnd;
  }

  bool Take(Kind kind) {
    if (at_ == parts_.size() || parts_[at_].kind != kind) return false;
    ++at_;
    return true;
  }
  bool Statement(std::string_view text) {
    return at_ < parts_.size() && parts_[at_].text == text && Take(Kind::kStatement);
  }
  std::optional<std::string> Text() {
    if (!Take(Kind::kText)) return std::nullopt;
    return parts_[at_ - 1].text;
  }

  std::vector<JinjaPart> parts_;
  std::size_t at_ = 0;
};

}  // namespace

absl::StatusOr<ChatTemplate> ChatTemplate::FromGguf(const GgufFile& file) {
  const absl::StatusOr<std::string> text = file.String("tokenizer.chat_template");
  if (!text.ok()) {
    return absl::InvalidArgumentError(fmt::format("{}: the model has no chat template; give it a plain prompt",
                                                  std::string(text.status().message())));
  }
  auto parts = ScanJinja(*text);
  const auto system = parts.has_value() ? ChatMlMatcher(*std::move(parts)).Match() : std::nullopt;
  if (!system.has_value()) {
    constexpr std::size_t kShown = 80;  // bytes: enough to tell templates apart
    return absl::InvalidArgumentError(fmt::format(
        "the model's chat template is not supported (only plain ChatML is): \"{}{}\"; give it a plain prompt",
        text->substr(0, kShown), text->size() > kShown ? "..." : ""));
  }
  ChatTemplate result;
  result.default_system_ = *system;
  return result;
}

std::string ChatTemplate::Render(std::span<const ChatMessage> messages) const {
  std::string out;
  if (!messages.empty() && messages[0].role != "system" && !default_system_.empty()) {
    out.append(kSystemHead).append(default_system_).append(kEnd);
  }
  for (const ChatMessage& message : messages) {
    out.append(kStart).append(message.role).append("\n").append(message.content).append(kEnd);
  }
  out.append(kAssistantHead);
  return out;
}

}  // namespace kvist::engine
