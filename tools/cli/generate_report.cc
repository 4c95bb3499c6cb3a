#include "tools/cli/generate_report.h"

#include "absl/time/time.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"

namespace kvist::cli {

std::string_view TierOf(const engine::GenerateResult& result) {
  if (result.cached_from_dram > 0 && result.cached_from_nvme > 0) return "dram+nvme";
  if (result.cached_from_dram > 0) return "dram";
  if (result.cached_from_nvme > 0) return "nvme";
  return "-";
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
      {"tier", std::string(TierOf(result))},
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
