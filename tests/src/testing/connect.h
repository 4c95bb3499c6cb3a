// A RemoteStore on a socket, or a failed test.
#pragma once

#include <memory>
#include <string>

#include "gtest/gtest.h"
#include "src/client/remote_store.h"

namespace kvist::testing {

inline std::unique_ptr<RemoteStore> Connect(const std::string& socket) {
  RemoteStoreOptions options;
  options.socket_path = socket;
  auto store = RemoteStore::Connect(options);
  EXPECT_TRUE(store.ok()) << store.status();
  return store.ok() ? std::move(*store) : nullptr;
}

}  // namespace kvist::testing
