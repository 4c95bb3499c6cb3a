#include "tools/analytics/prefix_trace.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"

namespace kvist::analytics {
namespace {

using nlohmann::json;

constexpr std::uint32_t kMooncakeBlockTokens = 512;
constexpr std::uint32_t kNoParent = std::numeric_limits<std::uint32_t>::max();

// Numbers blocks by prefix: an id after another parent is another block. One instance per scope of the format's ids.
class BlockNumbers {
 public:
  explicit BlockNumbers(std::uint32_t& next) : next_(next) {}

  std::uint32_t Of(std::uint32_t parent, std::uint64_t id) {
    const auto [it, is_new] = numbers_.try_emplace({parent, id}, next_);
    if (is_new) ++next_;
    return it->second;
  }

 private:
  std::uint32_t& next_;
  absl::flat_hash_map<std::pair<std::uint32_t, std::uint64_t>, std::uint32_t> numbers_;
};

// A number that is not negative; nullopt for anything else.
std::optional<double> NumberAt(const json& object, const char* field) {
  if (!object.is_object()) return std::nullopt;
  const auto it = object.find(field);
  if (it == object.end() || !it->is_number() || it->get<double>() < 0) return std::nullopt;
  return it->get<double>();
}

// Whether the ids are there and cover the prompt: one per block, the last one perhaps left out when partial.
bool FitsIds(const json& request, double tokens, std::uint32_t block_tokens) {
  const auto ids = request.find("hash_ids");
  if (ids == request.end() || !ids->is_array()) return false;
  if (!std::ranges::all_of(*ids, [](const json& id) { return id.is_number_unsigned(); })) return false;
  const double blocks = tokens / block_tokens;
  return static_cast<double>(ids->size()) > blocks - 1 && static_cast<double>(ids->size()) < blocks + 1;
}

TraceRequest ToRequest(const json& request, std::int64_t time_ms, double tokens, BlockNumbers& numbers) {
  TraceRequest out{time_ms, static_cast<std::uint32_t>(tokens), {}};
  std::uint32_t parent = kNoParent;
  for (const json& id : request["hash_ids"]) {
    parent = numbers.Of(parent, id.get<std::uint64_t>());
    out.blocks.push_back(parent);
  }
  return out;
}

void SortByTime(PrefixTrace& trace) { std::ranges::stable_sort(trace.requests, {}, &TraceRequest::time_ms); }

absl::Status AddSession(const json& requests, std::int64_t start_ms, BlockNumbers& numbers, PrefixTrace& trace,
                        const std::string& name) {
  for (const json& request : requests) {
    if (const auto nested = request.find("requests"); nested != request.end() && nested->is_array()) {
      if (absl::Status status = AddSession(*nested, start_ms, numbers, trace, name); !status.ok()) return status;
      continue;
    }
    const auto time_s = NumberAt(request, "t");
    const auto tokens = NumberAt(request, "in");
    if (!time_s || !tokens || !FitsIds(request, *tokens, trace.block_tokens)) {
      return absl::InvalidArgumentError(fmt::format(
          "{}: a request lacks t, in or hash_ids, or its hash_ids don't fit its length: is it an agent session?",
          name));
    }
    trace.requests.push_back(
        ToRequest(request, start_ms + static_cast<std::int64_t>(*time_s * 1000), *tokens, numbers));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<PrefixTrace> ReadMooncakeTrace(std::istream& lines, std::string_view name) {
  PrefixTrace trace;
  trace.block_tokens = kMooncakeBlockTokens;
  BlockNumbers numbers(trace.distinct_blocks);
  std::string line;
  for (std::size_t number = 1; std::getline(lines, line); ++number) {
    const json request = json::parse(line, nullptr, /*allow_exceptions=*/false);
    const auto time_ms = NumberAt(request, "timestamp");
    const auto tokens = NumberAt(request, "input_length");
    if (!time_ms || !tokens || !FitsIds(request, *tokens, trace.block_tokens)) {
      return absl::InvalidArgumentError(
          fmt::format("{}, line {}: not a request with timestamp, input_length and fitting hash_ids: is it a Mooncake "
                      "trace?",
                      name, number));
    }
    trace.requests.push_back(ToRequest(request, static_cast<std::int64_t>(*time_ms), *tokens, numbers));
  }
  SortByTime(trace);
  return trace;
}

absl::StatusOr<PrefixTrace> ReadMooncakeTrace(const std::filesystem::path& file) {
  std::ifstream lines(file);
  if (!lines) return absl::NotFoundError(fmt::format("cannot read {}: is the path right?", file.string()));
  return ReadMooncakeTrace(lines, file.string());
}

absl::StatusOr<PrefixTrace> ReadAgentSessions(const std::filesystem::path& folder, std::int64_t stagger_ms) {
  std::error_code error;
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (entry.path().extension() == ".json") files.push_back(entry.path());
  }
  if (files.empty()) {
    return absl::NotFoundError(fmt::format("no .json sessions in {}: is the archive unpacked there?", folder.string()));
  }
  std::ranges::sort(files);
  PrefixTrace trace;
  std::int64_t start_ms = 0;
  for (const auto& file : files) {
    std::ifstream in(file);
    const json session = json::parse(in, nullptr, /*allow_exceptions=*/false);
    const auto block_tokens = NumberAt(session, "block_size");
    if (!block_tokens || *block_tokens < 1 || !session.contains("requests") || !session["requests"].is_array()) {
      return absl::InvalidArgumentError(
          fmt::format("{}: no block_size and requests: is it an agent session?", file.string()));
    }
    if (trace.block_tokens == 0) trace.block_tokens = static_cast<std::uint32_t>(*block_tokens);
    if (trace.block_tokens != *block_tokens) {
      return absl::InvalidArgumentError(fmt::format("{}: blocks of {} tokens, but {} in the sessions before it",
                                                    file.string(), *block_tokens, trace.block_tokens));
    }
    BlockNumbers numbers(trace.distinct_blocks);
    if (absl::Status status = AddSession(session["requests"], start_ms, numbers, trace, file.string()); !status.ok()) {
      return status;
    }
    start_ms += stagger_ms;
  }
  SortByTime(trace);
  return trace;
}

PrefixTrace WithLargerBlocks(const PrefixTrace& trace, std::uint32_t factor) {
  PrefixTrace out;
  out.block_tokens = trace.block_tokens * factor;
  BlockNumbers numbers(out.distinct_blocks);
  for (const TraceRequest& request : trace.requests) {
    TraceRequest& larger = out.requests.emplace_back(TraceRequest{request.time_ms, request.tokens, {}});
    for (std::size_t at = 0; at < request.blocks.size(); at += factor) {
      // The last small block stands for the large one: its number stands for all that is before it, too.
      const std::size_t last = std::min(at + factor, request.blocks.size()) - 1;
      larger.blocks.push_back(numbers.Of(kNoParent, request.blocks[last]));
    }
  }
  return out;
}

PrefixTrace WithoutPartialBlocks(const PrefixTrace& trace) {
  PrefixTrace out;
  out.block_tokens = trace.block_tokens;
  BlockNumbers numbers(out.distinct_blocks);
  for (const TraceRequest& request : trace.requests) {
    TraceRequest& full = out.requests.emplace_back(TraceRequest{request.time_ms, request.tokens, {}});
    const std::size_t whole = std::min<std::size_t>(request.blocks.size(), request.tokens / trace.block_tokens);
    for (std::size_t i = 0; i < whole; ++i) full.blocks.push_back(numbers.Of(kNoParent, request.blocks[i]));
  }
  return out;
}

}  // namespace kvist::analytics
