#include "engine/generate/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace kvist::engine {

TokenId Sampler::Sample(std::span<const float> logits) {
  const auto best = static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  if (options_.temperature <= 0.0f) return best;

  std::vector<TokenId> order(logits.size());
  std::iota(order.begin(), order.end(), TokenId{0});
  std::stable_sort(order.begin(), order.end(), [&](TokenId a, TokenId b) { return logits[a] > logits[b]; });
  std::vector<double> weights(logits.size());
  double total = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    weights[i] = std::exp((logits[order[i]] - logits[best]) / static_cast<double>(options_.temperature));
    total += weights[i];
  }
  // The nucleus: shortest head of the order that holds top_p of the mass; never empty.
  std::size_t kept = 0;
  double mass = 0;
  while (kept < order.size() && (kept == 0 || mass < static_cast<double>(options_.top_p) * total))
    mass += weights[kept++];

  double at = std::uniform_real_distribution<double>(0.0, mass)(random_);
  for (std::size_t i = 0; i < kept; ++i) {
    if (at < weights[i]) return order[i];
    at -= weights[i];
  }
  return order[kept - 1];
}

}  // namespace kvist::engine
