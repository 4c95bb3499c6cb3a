// The llama forward pass once more, in double and straight from the file: whole sequence at once, no cache, nothing
// shared with engine/model but the GGUF reader. For tests.
#pragma once

#include <span>
#include <vector>

#include "cachestore/key/key_hasher.h"
#include "engine/model/gguf.h"

namespace kvist::engine {

// Logits of every token: [tokens][vocab].
std::vector<std::vector<double>> NaiveLlamaLogits(const GgufFile& file, std::span<const TokenId> tokens);

}  // namespace kvist::engine
