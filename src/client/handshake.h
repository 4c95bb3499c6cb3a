// Connecting to kvistd: the socket, the version, and the shared memory that comes with the reply.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "src/client/remote_store.h"
#include "src/client/staging_area.h"
#include "src/protocol/descriptor.h"
#include "src/protocol/kvist.pb.h"
#include "src/protocol/mapping.h"

namespace kvist::client {

// What a completed handshake yields.
struct Attachment {
  protocol::Descriptor socket;  // non-blocking
  v1::HelloReply hello;
  std::shared_ptr<const protocol::Mapping> arena;
  std::shared_ptr<StagingArea> staging;  // null if none was granted
};

// Blocks up to options.handshake_timeout, or until `stop_fd` (an eventfd; -1 for none) becomes readable: Cancelled.
absl::StatusOr<Attachment> Attach(const RemoteStoreOptions& options, int stop_fd);

}  // namespace kvist::client
