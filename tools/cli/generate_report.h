// What `kvist generate` says about a finished run.
#pragma once

#include <string>
#include <string_view>

#include "cachestore/prefix_store.h"
#include "engine/generate/generator.h"

namespace kvist::cli {

// The tiers that cached tokens came from, as in "dram" or "nvme+shared"; "-" if none were cached.
std::string TierOf(const engine::GenerateResult& result);

// Tokens a second after the first token; 0 where there was none after it.
double DecodeTokensPerSecond(const engine::GenerateResult& result);

// One line for people.
std::string SummaryLine(const engine::GenerateResult& result);

// One JSON object for programs; fields are only ever added.
std::string ToJson(const engine::GenerateResult& result, std::string_view model_path);

}  // namespace kvist::cli
