// PrefixTrace: requests as chains of token blocks, read from the trace formats that others publish. Blocks are numbered
// densely from 0; a number stands for one block after one particular prefix, whatever the format's own ids mean.
#pragma once

#include <cstdint>
#include <filesystem>
#include <istream>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace kvist::analytics {

struct TraceRequest {
  std::int64_t time_ms = 0;
  std::uint32_t tokens = 0;           // of the prompt
  std::vector<std::uint32_t> blocks;  // head first; the last one may be partial
};

struct PrefixTrace {
  std::uint32_t block_tokens = 0;
  std::uint32_t distinct_blocks = 0;   // the working set
  std::vector<TraceRequest> requests;  // in order of time
};

// Mooncake's: JSON lines of `timestamp` (ms), `input_length` and `hash_ids`, one per 512 tokens. `name` is for errors.
absl::StatusOr<PrefixTrace> ReadMooncakeTrace(std::istream& lines, std::string_view name);
absl::StatusOr<PrefixTrace> ReadMooncakeTrace(const std::filesystem::path& file);

// kv-cache-tester's: a folder of trace_*.json files, one per agent session, whose block ids hold within the file only
// and whose times (s) start at its own start. Session n (by file name) starts n * `stagger_ms` after the first.
// Requests nested in others (sub-agents) are requests like any other.
absl::StatusOr<PrefixTrace> ReadAgentSessions(const std::filesystem::path& folder, std::int64_t stagger_ms);

// The same requests, with `factor` blocks in one.
PrefixTrace WithLargerBlocks(const PrefixTrace& trace, std::uint32_t factor);
// The same requests without partial blocks, which a store of full blocks never sees.
PrefixTrace WithoutPartialBlocks(const PrefixTrace& trace);

}  // namespace kvist::analytics
