// One run: a list of operations on a LocalStore, each compared with a model of what a store must do.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace kvist::property {

enum class Kind : std::uint8_t {
  kCommit,
  kAcquire,
  kMatch,
  kTouch,
  kPin,
  kUnpin,
  kDrop,
  kDropAll,
  kAdvance,
  kSweep,
  kFlush,
  kReopen,
  kFault,
  kMend,
};

struct Op {
  Kind kind = Kind::kMatch;
  std::uint32_t tenant = 0;
  std::uint32_t path = 0;  // of a block: its bits below the leading one, highest first, are the way from the root
  std::uint32_t argument = 0;
};

enum class Mode : std::uint8_t {
  kAmple,   // room for all: what was stored and has not expired must be there
  kTight,   // tiers in motion: what is not there is evicted, what is there must be right
  kFaulty,  // tight, and files that fail
};

struct Config {
  Mode mode = Mode::kAmple;
  bool forget_drops = false;  // a planted fault: the store is not told of drops
};

inline constexpr std::uint32_t kTenants = 2;
inline constexpr std::uint32_t kDepthMax = 5;

std::string ToText(const std::vector<Op>& ops);
std::vector<Op> FromText(const std::string& text);

// Empty, or what went wrong at which operation.
std::string RunOps(const Config& config, const std::vector<Op>& ops);

}  // namespace kvist::property
