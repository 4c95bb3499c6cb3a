// A client that speaks bytes, well-formed or not.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "src/protocol/descriptor.h"
#include "src/protocol/kvist.pb.h"

namespace kvist::testing {

class RawClient {
 public:
  explicit RawClient(const std::string& socket_path);  // connected() tells

  bool connected() const { return socket_.valid(); }
  int fd() const { return socket_.get(); }

  bool SendBytes(std::string_view bytes);  // blocks; false if the daemon closed
  bool SendRequest(const v1::Request& request);
  bool SendHello(std::uint64_t staging_bytes = 0);
  // The next reply; nullopt when the connection ended or nothing came in time.
  std::optional<v1::Reply> Read(absl::Duration timeout = absl::Seconds(30));
  // True once the daemon has ended the connection; replies before that are dropped.
  bool WaitClosed(absl::Duration timeout = absl::Seconds(30));

  std::vector<protocol::Descriptor>& descriptors() { return descriptors_; }

 private:
  bool ReadExactly(char* to, std::size_t bytes, absl::Time deadline);

  protocol::Descriptor socket_;
  std::vector<protocol::Descriptor> descriptors_;
};

}  // namespace kvist::testing
