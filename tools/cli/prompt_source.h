// Where a prompt comes from: -p TEXT, -f FILE, or -f - for standard input.
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"

namespace kvist::cli {

// More than any model's context holds (a token is seldom above 8 bytes, contexts end at 2^20 tokens); a wrong file
// is noticed before it is tokenized.
inline constexpr std::size_t kPromptBytesMax = std::size_t{16} << 20;

// The bytes of `path`, "-" being standard input. The message names the fault and the remedy.
absl::StatusOr<std::string> ReadPrompt(const std::string& path);

}  // namespace kvist::cli
