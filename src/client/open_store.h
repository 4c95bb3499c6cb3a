// Opens the store that a user names: embedded or through the daemon.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "cachestore/local_store.h"
#include "cachestore/prefix_store.h"
#include "src/client/remote_store.h"

namespace kvist {

struct OpenStoreOptions {
  LocalStoreOptions local;    // its directory is taken from the url
  RemoteStoreOptions remote;  // its socket path is taken from the url
};

// "unix:/run/kvist/kvistd.sock", or "unix:" for the default socket: RemoteStore. "local:DIR", or a plain path: an
// embedded LocalStore in that directory. InvalidArgument for any other scheme.
absl::StatusOr<std::unique_ptr<PrefixStore>> OpenStore(const std::string& url, const OpenStoreOptions& options = {});

}  // namespace kvist
