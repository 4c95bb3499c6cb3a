#include "tools/cli/store_flag.h"

#include <filesystem>
#include <system_error>

#include "fmt/format.h"
#include "src/client/open_store.h"

namespace kvist::cli {
namespace {

constexpr absl::Duration kDrainTimeout = absl::Seconds(60);
constexpr std::string_view kUnix = "unix:";
constexpr std::string_view kLocal = "local:";
constexpr const char* kFormatFile = "FORMAT";  // every store directory has one (cachestore/tier/nvme_tier.h)

}  // namespace

void StoreFlag::Add(CLI::App& app, bool required) {
  auto* option = app.add_option("--store", url,
                                required ? "unix:SOCKET of a running kvistd, or a store's folder"
                                         : "unix:SOCKET of a running kvistd, or a folder; none: no cache")
                     ->type_name("URL");
  if (required) option->required();
  app.add_option("--shared", shared, "A folder that this store shares with others; a kvistd has its own setting")
      ->type_name("DIR");
}

bool StoreFlag::embedded() const { return !url.empty() && !std::string_view(url).starts_with(kUnix); }

std::string StoreFlag::directory() const {
  if (!embedded()) return {};
  return std::string_view(url).starts_with(kLocal) ? url.substr(kLocal.size()) : url;
}

absl::StatusOr<std::unique_ptr<PrefixStore>> Open(const StoreFlag& flag, bool existing, std::uint64_t dram_bytes) {
  if (!flag.shared.empty() && !flag.embedded()) {
    return absl::InvalidArgumentError(
        "--shared goes with a store's folder; a kvistd has shared.directory in its configuration");
  }
  if (existing && flag.embedded()) {
    std::error_code ignored;
    if (!std::filesystem::exists(std::filesystem::path(flag.directory()) / kFormatFile, ignored)) {
      return absl::NotFoundError(fmt::format(
          "{} holds no store. Name the folder given to `kvist generate --store`, or a daemon's unix:SOCKET.",
          flag.directory()));
    }
  }
  OpenStoreOptions options;
  options.local.dram_bytes = dram_bytes;
  options.local.shared.folder.directory = flag.shared;
  // The process ends with its command; nothing is written later.
  options.local.shared.drain_timeout = kDrainTimeout;
  return OpenStore(flag.url, options);
}

}  // namespace kvist::cli
