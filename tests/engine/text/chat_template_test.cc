#include "engine/text/chat_template.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <vector>

#include "tests/engine/tiny_gguf.h"

namespace kvist::engine {
namespace {

using ::testing::HasSubstr;

class ChatTemplateTest : public ::testing::Test {
 protected:
  ~ChatTemplateTest() override { std::remove(path_.c_str()); }
  absl::StatusOr<ChatTemplate> FromText(const std::string& text) {
    EXPECT_TRUE(WriteWholeFile(path_, TinyGgufMetadata({.chat_template = text}).Build()).ok());
    const auto file = GgufFile::Open(path_);
    if (!file.ok()) return file.status();
    return ChatTemplate::FromGguf(**file);
  }
  const std::string path_ = fmt::format("{}/chat_template_test_{}.gguf", ::testing::TempDir(), getpid());
};

const std::vector<ChatMessage> kUserOnly{{"user", "Hi"}};
constexpr char kPlainRendered[] = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n";

TEST_F(ChatTemplateTest, DefaultSystemMessageComesFromTheTemplate) {
  const auto chat = FromText("");
  ASSERT_TRUE(chat.ok()) << chat.status();
  EXPECT_EQ(chat->Render(kUserOnly),
            fmt::format("<|im_start|>system\n{}<|im_end|>\n{}", kTinyDefaultSystem, kPlainRendered));
  EXPECT_EQ(chat->Render(std::vector<ChatMessage>{{"system", "S"}, {"user", "Hi"}}),
            fmt::format("<|im_start|>system\nS<|im_end|>\n{}", kPlainRendered));
  EXPECT_EQ(chat->Render({}), "<|im_start|>assistant\n");
}

TEST_F(ChatTemplateTest, WritingsOfPlainChatMlAreRecognised) {
  const std::string texts[] = {
      // One output per turn, as most converters write it.
      "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + "
      "'\\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}",
      // Double quotes, attributes, whitespace control, a guard, a comment.
      "{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}\n"
      "{#- turns -#}\n"
      "{%- for message in messages -%}\n"
      "  {{- \"<|im_start|>\" + message.role + \"\\n\" + message.content + \"<|im_end|>\\n\" -}}\n"
      "{%- endfor -%}\n"
      "{%- if add_generation_prompt -%}\n  {{- \"<|im_start|>assistant\\n\" -}}\n{%- endif -%}\n",
      // Text between the tags.
      "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
      "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
      // The last turn left open unless a prompt follows.
      "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content']}}"
      "{% if (loop.last and add_generation_prompt) or not loop.last %}{{ '<|im_end|>' + '\\n'}}{% endif %}"
      "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}",
  };
  for (const std::string& text : texts) {
    const auto chat = FromText(text);
    ASSERT_TRUE(chat.ok()) << chat.status();
    EXPECT_EQ(chat->Render(kUserOnly), kPlainRendered) << text;
  }
}

TEST_F(ChatTemplateTest, AnythingElseIsRefused) {
  const std::string texts[] = {
      "{% for m in messages %}[INST] {{ m['content'] }} [/INST]{% endfor %}",
      // Almost ChatML: trimmed content, another assistant header, a space, a missing newline, something after it.
      "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] | trim + "
      "'<|im_end|>' + '\\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}",
      "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n'}}"
      "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n<think>' }}{% endif %}",
      "{% for message in messages %} {{'<|im_start|>' + message['role'] + '\\n' + message['content'] + "
      "'<|im_end|>\\n'}}"
      "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}",
      "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>'}}"
      "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}",
      "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n'}}"
      "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}!",
      // Malformed.
      "{% for message in messages",
      "{{ 'open",
      "{{",
      "{%",
      "{{ }}",
      "{{ + }}",
      "{#",
      "{{ '\\q' }}",
      "{",
      "{{-",
      "{%-%}",
      "{{ message['role'] + }}",
      " ",
  };
  for (const std::string& text : texts) {
    const auto chat = FromText(text);
    EXPECT_EQ(chat.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(chat.status().message()), HasSubstr("chat template")) << text;
  }
}

TEST_F(ChatTemplateTest, AFileWithoutATemplateSaysSo) {
  const auto chat = FromText("none");
  EXPECT_EQ(chat.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(chat.status().message()), HasSubstr("tokenizer.chat_template"));
}

}  // namespace
}  // namespace kvist::engine
