#include "src/daemon/config_value.h"

#include <pwd.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "fmt/format.h"
#include "src/protocol/socket_path.h"

namespace kvist::daemon {
namespace {

struct Unit {
  std::string_view name;
  double factor;
};

constexpr std::array<Unit, 9> kByteUnits = {{{"B", 1.0},
                                             {"KiB", 1024.0},
                                             {"MiB", 1024.0 * 1024},
                                             {"GiB", 1024.0 * 1024 * 1024},
                                             {"TiB", 1024.0 * 1024 * 1024 * 1024},
                                             {"kB", 1e3},
                                             {"MB", 1e6},
                                             {"GB", 1e9},
                                             {"TB", 1e12}}};
constexpr std::array<Unit, 5> kTimeUnits = {{{"ms", 1e-3}, {"s", 1.0}, {"m", 60.0}, {"h", 3600.0}, {"d", 86400.0}}};

// 2^53: beyond it a double no longer counts in ones. 8 PiB is no real store's size.
constexpr double kMaxNumber = 9007199254740992.0;

std::string_view TrimSpaces(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

template <std::size_t N>
absl::StatusOr<double> ParseWithUnit(std::string_view text, const std::array<Unit, N>& units,
                                     std::string_view example) {
  const std::string_view trimmed = TrimSpaces(text);
  double number = 0;
  const auto [end, error] =
      std::from_chars(trimmed.data(), trimmed.data() + trimmed.size(), number, std::chars_format::fixed);
  if (error != std::errc() || number < 0 || !std::isfinite(number)) {
    return absl::InvalidArgumentError(fmt::format("\"{}\" is not a number with a unit, like \"{}\"", text, example));
  }
  const std::string_view name = TrimSpaces(trimmed.substr(static_cast<std::size_t>(end - trimmed.data())));
  std::string known;
  for (const Unit& unit : units) {
    if (unit.name == name) {
      if (number * unit.factor >= kMaxNumber)
        return absl::InvalidArgumentError(fmt::format("\"{}\" is too large", text));
      return number * unit.factor;
    }
    known += fmt::format("{}{}", known.empty() ? "" : ", ", unit.name);
  }
  return absl::InvalidArgumentError(fmt::format(
      "\"{}\": {}; use one of {}", text, name.empty() ? "no unit" : fmt::format("unknown unit \"{}\"", name), known));
}

std::string HomeDirectory() {
  if (const char* home = std::getenv("HOME"); home != nullptr && home[0] == '/') return home;
  if (const passwd* user = ::getpwuid(::geteuid()); user != nullptr && user->pw_dir != nullptr) return user->pw_dir;
  return "/";
}

std::string CacheDirectory() {
  if (const char* xdg = std::getenv("XDG_CACHE_HOME"); xdg != nullptr && xdg[0] == '/') return xdg;
  return HomeDirectory() + "/.cache";
}

}  // namespace

absl::StatusOr<std::uint64_t> ParseBytes(std::string_view text) {
  const auto bytes = ParseWithUnit(text, kByteUnits, "4GiB");
  if (!bytes.ok()) return bytes.status();
  return static_cast<std::uint64_t>(std::llround(*bytes));
}

std::string BytesText(std::uint64_t bytes) {
  static constexpr std::array<std::string_view, 5> kNames = {"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  while (unit + 1 < kNames.size() && bytes != 0 && bytes % 1024 == 0) {
    bytes /= 1024;
    ++unit;
  }
  return fmt::format("{}{}", bytes, kNames[unit]);
}

absl::StatusOr<absl::Duration> ParseDuration(std::string_view text) {
  if (TrimSpaces(text) == "inf") return absl::InfiniteDuration();
  const auto seconds = ParseWithUnit(text, kTimeUnits, "72h");
  if (!seconds.ok()) return seconds.status();
  return absl::Milliseconds(std::llround(*seconds * 1000));
}

std::string DurationText(absl::Duration duration) {
  if (duration == absl::InfiniteDuration()) return "inf";
  const std::int64_t ms = absl::ToInt64Milliseconds(duration);
  for (const auto& [factor, name] :
       {std::pair<std::int64_t, const char*>{3'600'000, "h"}, {60'000, "m"}, {1000, "s"}}) {
    if (ms != 0 && ms % factor == 0) return fmt::format("{}{}", ms / factor, name);
  }
  return fmt::format("{}ms", ms);
}

absl::StatusOr<std::string> ExpandPath(std::string_view text) {
  if (text.empty()) return absl::InvalidArgumentError("a path must not be empty");
  std::string path;
  if (text == "~" || text.starts_with("~/")) {
    path = HomeDirectory();
    text.remove_prefix(1);
  }
  while (!text.empty()) {
    const std::size_t start = text.find("${");
    path += text.substr(0, start);
    if (start == text.npos) break;
    const std::size_t end = text.find('}', start);
    const std::string_view name = end == text.npos ? "" : text.substr(start + 2, end - start - 2);
    if (name == "HOME") {
      path += HomeDirectory();
    } else if (name == "RUNTIME_DIR") {
      path += protocol::DefaultRuntimeDirectory();
    } else if (name == "CACHE_DIR") {
      path += CacheDirectory();
    } else {
      return absl::InvalidArgumentError(
          fmt::format("unknown variable \"${{{}}}\"; known are ${{HOME}}, ${{RUNTIME_DIR}}, ${{CACHE_DIR}}", name));
    }
    text.remove_prefix(end + 1);
  }
  return path;
}

}  // namespace kvist::daemon
