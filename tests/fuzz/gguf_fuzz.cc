// libFuzzer target: any bytes as a model file, through the parser, the tokenizer and the chat template.
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/model/gguf.h"
#include "engine/text/chat_template.h"
#include "engine/text/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // A file in memory: the parser maps what it opens.
  static const int file = memfd_create("gguf_fuzz", MFD_CLOEXEC);
  static const std::string path = fmt::format("/proc/self/fd/{}", file);
  if (file < 0 || ftruncate(file, 0) != 0 || pwrite(file, data, size, 0) != static_cast<ssize_t>(size)) return -1;
  using namespace kvist::engine;
  const auto gguf = GgufFile::Open(path);
  if (!gguf.ok()) return 0;
  for (const GgufTensor& tensor : (*gguf)->tensors()) {
    if (tensor.data.empty()) continue;  // touch both ends: they must lie inside the mapping
    volatile std::byte sink = tensor.data.front();
    sink = tensor.data.back();
    static_cast<void>(sink);
  }
  const auto chat = ChatTemplate::FromGguf(**gguf);
  if (chat.ok()) static_cast<void>(chat->Render(std::vector<ChatMessage>{{"user", "hi"}}));
  const auto tokenizer = Tokenizer::FromGguf(**gguf);
  if (tokenizer.ok()) {
    const auto tokens = (*tokenizer)->Encode("the hello 12 <|im_end|>\n\xff\xc3\xa9", {});
    static_cast<void>((*tokenizer)->Decode(tokens, true));
  }
  return 0;
}
