// What `kvist generate` says about a finished run.
#pragma once

#include <string>
#include <string_view>

#include "engine/generate/generator.h"

namespace kvist::cli {

// The fastest tier that all cached tokens came from, "dram+nvme" if from both, "-" if none were cached.
std::string_view TierOf(const engine::GenerateResult& result);

// Tokens a second after the first token; 0 where there was none after it.
double DecodeTokensPerSecond(const engine::GenerateResult& result);

// One line for people.
std::string SummaryLine(const engine::GenerateResult& result);

// One JSON object for programs; fields are only ever added.
std::string ToJson(const engine::GenerateResult& result, std::string_view model_path);

}  // namespace kvist::cli
