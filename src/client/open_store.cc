#include "src/client/open_store.h"

#include <sys/stat.h>

#include <string_view>
#include <utility>

#include "fmt/format.h"
#include "src/protocol/socket_path.h"

namespace kvist {
namespace {

constexpr std::string_view kUnix = "unix:";
constexpr std::string_view kLocal = "local:";

absl::StatusOr<std::unique_ptr<PrefixStore>> OpenRemote(std::string path, RemoteStoreOptions options) {
  options.socket_path = path.empty() ? protocol::DefaultSocketPath() : std::move(path);
  auto store = RemoteStore::Connect(options);
  if (!store.ok()) return store.status();
  return std::unique_ptr<PrefixStore>(std::move(*store));
}

absl::StatusOr<std::unique_ptr<PrefixStore>> OpenLocal(const std::string& directory, LocalStoreOptions options) {
  struct stat info {};
  if (::stat(directory.c_str(), &info) == 0) {
    if (S_ISSOCK(info.st_mode)) {
      return absl::InvalidArgumentError(fmt::format("{} is a socket: write unix:{}", directory, directory));
    }
    if (!S_ISDIR(info.st_mode)) {
      return absl::InvalidArgumentError(fmt::format("{} is not a directory: a store lives in a directory", directory));
    }
  }
  options.nvme.directory = directory;
  auto store = LocalStore::Open(options);
  if (!store.ok()) return store.status();
  return std::unique_ptr<PrefixStore>(std::move(*store));
}

}  // namespace

absl::StatusOr<std::unique_ptr<PrefixStore>> OpenStore(const std::string& url, const OpenStoreOptions& options) {
  const std::string_view view = url;
  if (view.starts_with(kUnix)) return OpenRemote(url.substr(kUnix.size()), options.remote);
  const std::string directory = view.starts_with(kLocal) ? url.substr(kLocal.size()) : url;
  // A scheme is letters before a colon; a path that holds one can be written with a leading "./" or "local:".
  const std::size_t colon = view.find(':');
  if (!view.starts_with(kLocal) && colon != std::string_view::npos && view.substr(0, colon).find('/') == view.npos) {
    return absl::InvalidArgumentError(
        fmt::format("store \"{}\": unknown scheme; use unix:SOCKET, local:DIRECTORY or a directory's path", url));
  }
  if (directory.empty()) return absl::InvalidArgumentError("store: no directory given (local:DIRECTORY)");
  return OpenLocal(directory, options.local);
}

}  // namespace kvist
