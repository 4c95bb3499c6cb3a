#include "bench/peer_script.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "fmt/format.h"

namespace kvist::bench {
namespace {

constexpr absl::Duration kAnswerTimeout = absl::Seconds(120);  // a slow drive, or a peer that hangs

// Instead of this process, after a fork: nothing but system calls.
[[noreturn]] void Become(const std::vector<const char*>& arguments, int socket, int log) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // it goes with us, however that is
  ::dup2(socket, STDIN_FILENO);
  ::dup2(socket, STDOUT_FILENO);
  if (log >= 0) ::dup2(log, STDERR_FILENO);
  ::execv(arguments.front(), const_cast<char* const*>(arguments.data()));
  ::_exit(127);
}

}  // namespace

absl::StatusOr<std::unique_ptr<PeerScript>> PeerScript::Start(const std::string& name, const std::string& directory,
                                                              std::size_t blocks, std::size_t block_bytes) {
  const std::string python = KVIST_PEERS_PYTHON;
  if (::access(python.c_str(), X_OK) != 0) {
    return absl::UnavailableError(fmt::format("there is no {}; tools/setup/fetch-peers makes it", python));
  }
  const std::string script = fmt::format("{}/{}.py", KVIST_PEER_SCRIPTS, name);
  const std::string log_path = fmt::format("{}/{}.log", directory, name);
  const std::string block_count = std::to_string(blocks);
  const std::string bytes = std::to_string(block_bytes);
  const std::vector<const char*> arguments = {
      python.c_str(),  "-B",          script.c_str(), "--blocks",        block_count.c_str(),
      "--block-bytes", bytes.c_str(), "--directory",  directory.c_str(), nullptr};
  std::array<int, 2> ends = {};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    return absl::UnavailableError("no socket for it");
  }
  const int log = ::open(log_path.c_str(), O_CREAT | O_WRONLY | O_TRUNC | O_CLOEXEC, 0600);
  const pid_t pid = ::fork();
  if (pid == 0) Become(arguments, ends[1], log);
  ::close(ends[1]);
  if (log >= 0) ::close(log);
  std::unique_ptr<PeerScript> peer(new PeerScript(name, ends[0], pid));
  if (pid < 0) return absl::UnavailableError("no process for it");
  absl::StatusOr<std::string> ready = peer->Answer("ready");
  if (!ready.ok()) return ready.status();
  peer->text_ = *std::move(ready);
  return peer;
}

PeerScript::~PeerScript() {
  ::close(socket_);
  if (pid_ < 0) return;
  ::kill(pid_, SIGKILL);  // what it started goes with it
  ::waitpid(pid_, nullptr, 0);
}

absl::StatusOr<PeerScript::Round> PeerScript::Run() {
  if (::send(socket_, "\n", 1, MSG_NOSIGNAL) != 1) return absl::UnavailableError(name_ + " has ended");
  const absl::StatusOr<std::string> answer = Answer("round");
  if (!answer.ok()) return answer.status();
  Round round;
  if (std::sscanf(answer->c_str(), "%lf %lf", &round.put_seconds, &round.get_seconds) != 2 || round.put_seconds <= 0 ||
      round.get_seconds <= 0) {
    return absl::UnavailableError(fmt::format("{} answers '{}'", name_, *answer));
  }
  return round;
}

absl::StatusOr<std::string> PeerScript::Answer(const std::string& word) {
  const absl::Time deadline = absl::Now() + kAnswerTimeout;
  while (true) {  // a package may print lines of its own
    absl::StatusOr<std::string> line = ReadLine(deadline);
    if (!line.ok()) return line;
    if (line->starts_with("error ")) return absl::UnavailableError(line->substr(6));
    if (line->starts_with(word + " ")) return line->substr(word.size() + 1);
  }
}

absl::StatusOr<std::string> PeerScript::ReadLine(absl::Time deadline) {
  std::array<char, 4096> chunk = {};
  std::size_t end = unread_.find('\n');
  while (end == std::string::npos) {
    pollfd wanted = {.fd = socket_, .events = POLLIN, .revents = 0};
    const std::int64_t left = absl::ToInt64Milliseconds(deadline - absl::Now());
    if (::poll(&wanted, 1, static_cast<int>(std::max<std::int64_t>(left, 0))) <= 0) {
      return absl::UnavailableError(name_ + " does not answer");
    }
    const ssize_t got = ::recv(socket_, chunk.data(), chunk.size(), 0);
    if (got <= 0) return absl::UnavailableError(name_ + " ended without a word");
    unread_.append(chunk.data(), static_cast<std::size_t>(got));
    end = unread_.find('\n');
  }
  std::string line = unread_.substr(0, end);
  unread_.erase(0, end + 1);
  return line;
}

}  // namespace kvist::bench
