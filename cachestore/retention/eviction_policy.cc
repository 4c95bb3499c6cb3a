#include "cachestore/retention/eviction_policy.h"

#include <array>
#include <cstdlib>

#include "cachestore/retention/lru_policy.h"
#include "cachestore/retention/reuse_value_policy.h"
#include "cachestore/retention/s3_fifo_policy.h"

namespace kvist {
namespace {

constexpr std::array kKinds = {EvictionKind::kLru, EvictionKind::kS3Fifo, EvictionKind::kReuseValue,
                               EvictionKind::kReuseCost};

}  // namespace

std::string_view EvictionKindName(EvictionKind kind) {
  switch (kind) {
    case EvictionKind::kLru:
      return "lru";
    case EvictionKind::kS3Fifo:
      return "s3-fifo";
    case EvictionKind::kReuseValue:
      return "reuse-value";
    case EvictionKind::kReuseCost:
      return "reuse-cost";
  }
  std::abort();
}

std::optional<EvictionKind> EvictionKindFromName(std::string_view name) {
  for (const EvictionKind kind : kKinds) {
    if (EvictionKindName(kind) == name) return kind;
  }
  return std::nullopt;
}

std::unique_ptr<EvictionPolicy> MakeEvictionPolicy(EvictionKind kind, std::size_t expected_blocks) {
  switch (kind) {
    case EvictionKind::kLru:
      return std::make_unique<LruPolicy>(expected_blocks);
    case EvictionKind::kS3Fifo:
      return std::make_unique<S3FifoPolicy>(expected_blocks);
    case EvictionKind::kReuseValue:
      return std::make_unique<ReuseValuePolicy>(expected_blocks, /*double_cost_tokens=*/0);
    case EvictionKind::kReuseCost:
      return std::make_unique<ReuseValuePolicy>(expected_blocks, ReuseValuePolicy::kDoubleCostTokens);
  }
  std::abort();
}

}  // namespace kvist
