#include "tools/cli/prompt_source.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "fmt/format.h"

namespace kvist::cli {

absl::StatusOr<std::string> ReadPrompt(const std::string& path) {
  const bool standard_input = path == "-";
  // Standard input is not ours to close.
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(
      standard_input ? stdin : std::fopen(path.c_str(), "rb"),
      standard_input ? [](std::FILE*) { return 0; } : [](std::FILE* opened) { return std::fclose(opened); });
  if (file == nullptr) {
    return absl::NotFoundError(
        fmt::format("{}: {}. Name the prompt's file after -f, or - for standard input.", path, std::strerror(errno)));
  }
  std::string text;
  char buffer[1 << 16];
  while (const std::size_t got = std::fread(buffer, 1, sizeof buffer, file.get())) {
    text.append(buffer, got);
    if (text.size() > kPromptBytesMax) {
      return absl::InvalidArgumentError(fmt::format(
          "{}: longer than {} MiB, which no context holds. Is it the right file?", path, kPromptBytesMax >> 20));
    }
  }
  if (std::ferror(file.get()) != 0) {
    return absl::InvalidArgumentError(
        fmt::format("{}: cannot be read ({}). Name a text file.", path, std::strerror(errno)));
  }
  return text;
}

}  // namespace kvist::cli
