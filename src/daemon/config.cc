#include "src/daemon/config.h"

#include <cerrno>
#include <charconv>
#include <fstream>
#include <functional>
#include <sstream>
#include <utility>

#include "fmt/format.h"
#include "spdlog/spdlog.h"
#include "src/daemon/config_value.h"
#include "toml++/toml.h"

namespace kvist::daemon {
namespace {

struct Setting {
  std::string name;  // "section.key"
  std::string description;
  std::function<absl::Status(DaemonConfig&, std::string_view)> parse;
  std::function<std::string(const DaemonConfig&)> print;  // as TOML
  bool is_flag = false;                                   // true or false, without quotes
};

// `field` is a function from a DaemonConfig, const or not, to the setting's variable.
template <typename Field>
Setting Bytes(std::string name, Field field, std::uint64_t least, std::string description) {
  return {
      std::move(name), std::move(description),
      [field, least](DaemonConfig& config, std::string_view text) -> absl::Status {
        const auto bytes = ParseBytes(text);
        if (!bytes.ok()) return bytes.status();
        if (*bytes < least) {
          return absl::InvalidArgumentError(fmt::format("\"{}\" is less than the least, {}", text, BytesText(least)));
        }
        field(config) = *bytes;
        return absl::OkStatus();
      },
      [field](const DaemonConfig& config) { return fmt::format("\"{}\"", BytesText(field(config))); }};
}

template <typename Field>
Setting Number(std::string name, Field field, std::uint64_t least, std::uint64_t most, std::string description) {
  return {std::move(name), std::move(description),
          [field, least, most](DaemonConfig& config, std::string_view text) -> absl::Status {
            std::uint64_t value = 0;
            const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
            if (error != std::errc() || end != text.data() + text.size() || value < least || value > most) {
              return absl::InvalidArgumentError(
                  fmt::format("\"{}\" is not a whole number from {} to {}", text, least, most));
            }
            field(config) = value;
            return absl::OkStatus();
          },
          [field](const DaemonConfig& config) { return fmt::format("{}", field(config)); }};
}

template <typename Field>
Setting Time(std::string name, Field field, std::string description) {
  return {std::move(name), std::move(description),
          [field](DaemonConfig& config, std::string_view text) -> absl::Status {
            const auto duration = ParseDuration(text);
            if (!duration.ok()) return duration.status();
            if (*duration <= absl::ZeroDuration()) return absl::InvalidArgumentError("must be more than nothing");
            field(config) = *duration;
            return absl::OkStatus();
          },
          [field](const DaemonConfig& config) { return fmt::format("\"{}\"", DurationText(field(config))); }};
}

template <typename Field>
Setting Flag(std::string name, Field field, std::string description) {
  return {std::move(name), std::move(description),
          [field](DaemonConfig& config, std::string_view text) -> absl::Status {
            if (text != "true" && text != "false") {
              return absl::InvalidArgumentError(fmt::format("\"{}\" is neither true nor false", text));
            }
            field(config) = text == "true";
            return absl::OkStatus();
          },
          [field](const DaemonConfig& config) { return std::string(field(config) ? "true" : "false"); }, true};
}

enum class PathIs { kNeeded, kOptional };  // an optional one may be empty

template <typename Field>
Setting Path(std::string name, Field field, std::string description, PathIs path_is = PathIs::kNeeded) {
  return {std::move(name), std::move(description),
          [field, path_is](DaemonConfig& config, std::string_view text) -> absl::Status {
            if (path_is == PathIs::kOptional && text.empty()) {
              field(config).clear();
              return absl::OkStatus();
            }
            if (const auto expanded = ExpandPath(text); !expanded.ok()) return expanded.status();
            field(config) = std::string(text);
            return absl::OkStatus();
          },
          [field](const DaemonConfig& config) {
            std::ostringstream quoted;
            quoted << toml::value<std::string>(field(config));
            return quoted.str();
          }};
}

Setting LogLevel() {
  return {"daemon.log_level", "trace, debug, info, warn, error or off; the log goes to stderr.",
          [](DaemonConfig& config, std::string_view text) -> absl::Status {
            const std::string level(text);
            for (const char* known : {"trace", "debug", "info", "warn", "error", "off"}) {
              if (level == known) {
                config.log_level = level;
                return absl::OkStatus();
              }
            }
            return absl::InvalidArgumentError(
                fmt::format("\"{}\" is not a level: trace, debug, info, warn, error or off", level));
          },
          [](const DaemonConfig& config) { return fmt::format("\"{}\"", config.log_level); }};
}

Setting Eviction() {
  return {"store.eviction", "Which blocks leave a full tier: lru, s3-fifo, reuse-value or reuse-cost.",
          [](DaemonConfig& config, std::string_view text) -> absl::Status {
            if (!EvictionKindFromName(text)) {
              return absl::InvalidArgumentError(
                  fmt::format("\"{}\" is no eviction policy: lru, s3-fifo, reuse-value or reuse-cost", text));
            }
            config.eviction = std::string(text);
            return absl::OkStatus();
          },
          [](const DaemonConfig& config) { return fmt::format("\"{}\"", config.eviction); }};
}

std::vector<Setting> Settings() {
  constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
  return {
      Path(
          "daemon.socket", [](auto& c) -> auto& { return c.socket; },
          "UNIX socket, mode 0600; beside it lies SOCKET.lock while it runs."),
      Number(
          "daemon.threads", [](auto& c) -> auto& { return c.threads; }, 1, 64,
          "Threads that answer clients and copy payloads in."),
      LogLevel(),
      Time(
          "daemon.drain_timeout", [](auto& c) -> auto& { return c.drain_timeout; },
          "At a stop, work under way may take this long."),
      Time(
          "daemon.flush_timeout", [](auto& c) -> auto& { return c.flush_timeout; },
          "At a stop, writing DRAM to NVMe may take this long."),
      Path(
          "store.directory", [](auto& c) -> auto& { return c.directory; },
          "The store. Made if missing; one daemon per directory."),
      Bytes(
          "store.dram", [](auto& c) -> auto& { return c.dram_bytes; }, 16 * kMiB, "DRAM tier, all of it."),
      Bytes(
          "store.nvme", [](auto& c) -> auto& { return c.nvme_bytes; }, 16 * kMiB,
          "NVMe tier: all segment files together."),
      Bytes(
          "store.segment", [](auto& c) -> auto& { return c.segment_bytes; }, kMiB,
          "One segment file; must hold at least one block."),
      Number(
          "store.queue_depth", [](auto& c) -> auto& { return c.queue_depth; }, 1, 1024,
          "Transfers in flight to the device."),
      Eviction(),
      Time(
          "store.ttl", [](auto& c) -> auto& { return c.ttl; },
          "Blocks expire this long after their last use; \"inf\": never."),
      Path(
          "shared.directory", [](auto& c) -> auto& { return c.shared_directory; },
          "The folder shared with other kvistds; empty: none.", PathIs::kOptional),
      Flag(
          "shared.sync", [](auto& c) -> auto& { return c.shared_sync; },
          "Each block is on stable storage before others see it."),
      Number(
          "shared.threads", [](auto& c) -> auto& { return c.shared_threads; }, 2, 256, "Transfers at once."),
      Time(
          "shared.timeout", [](auto& c) -> auto& { return c.shared_timeout; }, "A read that takes longer is a miss."),
      Time(
          "shared.chain_timeout", [](auto& c) -> auto& { return c.shared_chain_timeout; },
          "The same, all of one prompt's reads together."),
      Time(
          "shared.drain_timeout", [](auto& c) -> auto& { return c.shared_drain_timeout; },
          "At a stop, writing to the folder may take this long."),
      Number(
          "limits.clients", [](auto& c) -> auto& { return c.limits.clients; }, 1, 65536, "Connections at once."),
      Time(
          "limits.handshake_timeout", [](auto& c) -> auto& { return c.limits.handshake_timeout; },
          "A connection must say Hello within it."),
      Number(
          "limits.outstanding_requests", [](auto& c) -> auto& { return c.limits.outstanding_requests; }, 1, 1'000'000,
          "Unanswered requests per client."),
      Bytes(
          "limits.outstanding_bytes", [](auto& c) -> auto& { return c.limits.outstanding_bytes; }, 16 * kMiB,
          "Their messages' memory, per client."),
      Number(
          "limits.leased_blocks", [](auto& c) -> auto& { return c.limits.leased_blocks; }, 1, 100'000'000,
          "Blocks one client may hold in DRAM."),
      Bytes(
          "limits.outgoing_bytes", [](auto& c) -> auto& { return c.limits.outgoing_bytes; }, 16 * kMiB,
          "Replies waiting for a client that does not read; beyond it, it is cut off."),
      Bytes(
          "limits.staging_per_client", [](auto& c) -> auto& { return c.limits.staging_per_client; }, 0,
          "Payloads one client may have on their way in."),
      Bytes(
          "limits.staging_total", [](auto& c) -> auto& { return c.limits.staging_total; }, 0,
          "The same, all clients together."),
  };
}

const Setting* Find(const std::vector<Setting>& settings, std::string_view name) {
  for (const Setting& setting : settings) {
    if (setting.name == name) return &setting;
  }
  return nullptr;
}

std::string KnownKeys(const std::vector<Setting>& settings, std::string_view section) {
  std::string known;
  for (const Setting& setting : settings) {
    if (!setting.name.starts_with(fmt::format("{}.", section))) continue;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", setting.name);
  }
  return known.empty() ? "sections are [daemon], [store], [shared] and [limits]" : fmt::format("known are {}", known);
}

absl::Status Fault(const std::string& where, const std::string& what) {
  return absl::InvalidArgumentError(fmt::format("{}: {}", where, what));
}

absl::Status ApplyNode(const std::vector<Setting>& settings, const std::string& file, const std::string& name,
                       const toml::key& key, const toml::node& node, DaemonConfig* config) {
  const std::string where = fmt::format("{}:{}", file, key.source().begin.line);
  const Setting* setting = Find(settings, name);
  if (setting == nullptr) {
    const std::string section = name.substr(0, name.find('.'));
    return Fault(where, fmt::format("unknown key \"{}\"; {}", name, KnownKeys(settings, section)));
  }
  std::string text;
  if (const auto as_text = node.value_exact<std::string>()) {
    text = *as_text;
  } else if (const auto as_number = node.value_exact<std::int64_t>()) {
    text = fmt::format("{}", *as_number);
  } else if (const auto as_flag = node.value_exact<bool>(); as_flag && setting->is_flag) {
    text = *as_flag ? "true" : "false";
  } else {
    return Fault(where, fmt::format("{}: must be a text or a whole number", name));
  }
  if (absl::Status status = setting->parse(*config, text); !status.ok()) {
    return Fault(where, fmt::format("{}: {}", name, std::string(status.message())));
  }
  return absl::OkStatus();
}

absl::Status ApplyFile(const std::vector<Setting>& settings, const std::string& file, const toml::table& root,
                       DaemonConfig* config) {
  for (const auto& [section, node] : root) {
    const toml::table* table = node.as_table();
    if (table == nullptr) {
      const std::string where = fmt::format("{}:{}", file, section.source().begin.line);
      return Fault(where, fmt::format("unknown key \"{}\"; {}", section.str(), KnownKeys(settings, "")));
    }
    for (const auto& [key, value] : *table) {
      const std::string name = fmt::format("{}.{}", section.str(), key.str());
      if (absl::Status status = ApplyNode(settings, file, name, key, value, config); !status.ok()) return status;
    }
    if (KnownKeys(settings, section.str()).starts_with("sections")) {
      const std::string where = fmt::format("{}:{}", file, section.source().begin.line);
      return Fault(where, fmt::format("unknown section [{}]; {}", section.str(), KnownKeys(settings, "")));
    }
  }
  return absl::OkStatus();
}

absl::Status ApplyOverride(const std::vector<Setting>& settings, const std::string& text, DaemonConfig* config) {
  const std::size_t equals = text.find('=');
  if (equals == text.npos) return Fault(fmt::format("--set {}", text), "write it as section.key=value");
  const std::string name = text.substr(0, equals);
  const Setting* setting = Find(settings, name);
  if (setting == nullptr) {
    return Fault(fmt::format("--set {}", text),
                 fmt::format("unknown key \"{}\"; {}", name, KnownKeys(settings, name.substr(0, name.find('.')))));
  }
  if (absl::Status status = setting->parse(*config, std::string_view(text).substr(equals + 1)); !status.ok()) {
    return Fault(fmt::format("--set {}", text), std::string(status.message()));
  }
  return absl::OkStatus();
}

// What no single key can know.
absl::Status CheckTogether(const std::string& name, const DaemonConfig& config) {
  if (config.segment_bytes > config.nvme_bytes) {
    return Fault(name, fmt::format("store.segment ({}) is larger than store.nvme ({})", BytesText(config.segment_bytes),
                                   BytesText(config.nvme_bytes)));
  }
  if (config.limits.staging_per_client > config.limits.staging_total) {
    return Fault(name, "limits.staging_per_client is larger than limits.staging_total");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<DaemonConfig> ParseConfig(std::string_view text, const std::string& name,
                                         const std::vector<std::string>& overrides) {
  const std::vector<Setting> settings = Settings();
  DaemonConfig config;
  try {  // toml++ reports by exception; it ends here
    const toml::table root = toml::parse(text, name);
    if (absl::Status status = ApplyFile(settings, name, root, &config); !status.ok()) return status;
  } catch (const toml::parse_error& error) {
    return Fault(fmt::format("{}:{}", name, error.source().begin.line), std::string(error.description()));
  }
  for (const std::string& entry : overrides) {
    if (absl::Status status = ApplyOverride(settings, entry, &config); !status.ok()) return status;
  }
  if (absl::Status status = CheckTogether(name, config); !status.ok()) return status;
  return config;
}

absl::StatusOr<DaemonConfig> LoadConfig(const std::string& path, const std::vector<std::string>& overrides) {
  if (path.empty()) return ParseConfig("", "command line", overrides);
  std::ifstream file(path);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf())) {
    return absl::NotFoundError(fmt::format("{}: cannot be read: give an existing file to --config", path));
  }
  return ParseConfig(text.str(), path, overrides);
}

std::string PrintConfig(const DaemonConfig& config) {
  std::string printed;
  std::string section;
  for (const Setting& setting : Settings()) {
    const std::size_t dot = setting.name.find('.');
    if (setting.name.substr(0, dot) != section) {
      printed += fmt::format("{}[{}]\n", section.empty() ? "" : "\n", setting.name.substr(0, dot));
      section = setting.name.substr(0, dot);
    }
    printed += fmt::format("# {}\n{} = {}\n", setting.description, setting.name.substr(dot + 1), setting.print(config));
  }
  return printed;
}

}  // namespace kvist::daemon
