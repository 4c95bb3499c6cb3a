// A peer that is a Python package: a script of bench/peers/ in a process of its own, which puts a prompt's blocks,
// reads them back and times both, one round whenever it is asked to. bench/peers/rounds.py is the other end.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace kvist::bench {

class PeerScript {
 public:
  struct Round {
    double put_seconds = 0;
    double get_seconds = 0;
  };

  // `name` is the script's, without .py; its files go to `directory`. Returns once the peer is warm. Unavailable: the
  // peer cannot be had here, and why, in a line.
  static absl::StatusOr<std::unique_ptr<PeerScript>> Start(const std::string& name, const std::string& directory,
                                                           std::size_t blocks, std::size_t block_bytes);
  ~PeerScript();  // ends the process
  PeerScript(const PeerScript&) = delete;
  PeerScript& operator=(const PeerScript&) = delete;

  // What the peer says of how it runs.
  const std::string& text() const { return text_; }

  // The bytes read were those written.
  absl::StatusOr<Round> Run();

 private:
  PeerScript(std::string name, int socket, pid_t pid) : name_(std::move(name)), socket_(socket), pid_(pid) {}
  // The rest of the next line that begins with `word`. Unavailable: it says why not, ended or took too long.
  absl::StatusOr<std::string> Answer(const std::string& word);
  absl::StatusOr<std::string> ReadLine(absl::Time deadline);

  const std::string name_;
  const int socket_;
  const pid_t pid_;
  std::string text_;
  std::string unread_;
};

}  // namespace kvist::bench
