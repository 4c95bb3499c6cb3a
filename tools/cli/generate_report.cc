#include "tools/cli/generate_report.h"

#include "absl/time/time.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"

namespace kvist::cli {

std::string TierOf(const engine::GenerateResult& result) {
  std::string tiers;
  const auto add = [&tiers](Tier tier, std::size_t tokens) {
    if (tokens > 0) tiers += fmt::format("{}{}", tiers.empty() ? "" : "+", TierName(tier));
  };
  add(Tier::kDram, result.cached_from_dram);
  add(Tier::kNvme, result.cached_from_nvme);
  add(Tier::kShared, result.cached_from_shared);
  return tiers.empty() ? "-" : tiers;
}

double DecodeTokensPerSecond(const engine::GenerateResult& result) {
  const double seconds = absl::ToDoubleSeconds(result.decode);
  // The first token is prefill's.
  return result.tokens.size() < 2 || seconds <= 0 ? 0.0 : static_cast<double>(result.tokens.size() - 1) / seconds;
}

std::string SummaryLine(const engine::GenerateResult& result) {
  return fmt::format("{} prompt tokens, {} cached (tier {}), first token after {:.3f} s, {} tokens at {:.1f}/s, {}",
                     result.prompt_tokens, result.cached_tokens, TierOf(result), absl::ToDoubleSeconds(result.ttft),
                     result.tokens.size(), DecodeTokensPerSecond(result), result.finish_reason);
}

std::string ToJson(const engine::GenerateResult& result, std::string_view model_path) {
  using Json = nlohmann::ordered_json;
  const Json object = {
      {"model", std::string(model_path)},
      {"text", result.text},
      {"tokens", result.tokens},
      {"finish_reason", result.finish_reason},
      {"prompt_tokens", result.prompt_tokens},
      {"cached_tokens", result.cached_tokens},
      {"cached_from_dram", result.cached_from_dram},
      {"cached_from_nvme", result.cached_from_nvme},
      {"cached_from_shared", result.cached_from_shared},
      {"tier", TierOf(result)},
      {"stored_blocks", result.stored_blocks},
      {"store_error", result.store_error},
      {"load_s", absl::ToDoubleSeconds(result.load)},
      {"prefill_s", absl::ToDoubleSeconds(result.prefill)},
      {"ttft_s", absl::ToDoubleSeconds(result.ttft)},
      {"decode_s", absl::ToDoubleSeconds(result.decode)},
      {"decode_tokens_per_s", DecodeTokensPerSecond(result)},
  };
  // A cut character at the end of a limited answer is shown as U+FFFD.
  return object.dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace kvist::cli
