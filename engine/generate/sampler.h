// Choosing the next token from logits. Greedy ties go to the lowest id. Deterministic for a given seed.
// Not thread-safe.
#pragma once

#include <cstdint>
#include <random>
#include <span>

#include "cachestore/key/key_hasher.h"

namespace kvist::engine {

struct SamplingOptions {
  float temperature = 0.0f;  // 0: greedy
  float top_p = 1.0f;        // nucleus: the smallest set of tokens whose probabilities sum to top_p
  std::uint64_t seed = 0;
};

class Sampler {
 public:
  explicit Sampler(const SamplingOptions& options) : options_(options), random_(options.seed) {}
  TokenId Sample(std::span<const float> logits);

 private:
  SamplingOptions options_;
  std::mt19937_64 random_;
};

}  // namespace kvist::engine
