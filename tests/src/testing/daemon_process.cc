#include "tests/src/testing/daemon_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <utility>

#include "absl/time/clock.h"
#include "fmt/format.h"
#include "tests/src/testing/scratch.h"

namespace kvist::testing {

Scratch::Scratch() {
  std::string name = "/tmp/kvist-test-XXXXXX";
  if (::mkdtemp(name.data()) != nullptr) directory_ = name;
}

Scratch::~Scratch() {
  std::error_code ignored;
  if (!directory_.empty()) std::filesystem::remove_all(directory_, ignored);
}

DaemonProcess DaemonProcess::Spawn(const Options& options) {
  DaemonProcess daemon;
  static int spawned = 0;  // a log of its own for each
  daemon.log_path_ = fmt::format("{}.{}.log", options.socket, spawned++);
  ::unlink(daemon.log_path_.c_str());
  std::vector<std::string> arguments = {KVISTD_BINARY};
  std::vector<std::string> settings = {"daemon.socket=" + options.socket,
                                       "store.directory=" + options.directory,
                                       "store.dram=32MiB",
                                       "store.nvme=64MiB",
                                       "store.segment=16MiB",
                                       "limits.staging_per_client=16MiB",
                                       "daemon.log_level=debug"};
  settings.insert(settings.end(), options.settings.begin(), options.settings.end());
  for (const std::string& setting : settings) {
    arguments.emplace_back("--set");
    arguments.push_back(setting);
  }
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  const std::string log = daemon.log_path_;
  daemon.pid_ = ::fork();
  if (daemon.pid_ == 0) {
    const int fd = ::open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0600);
    ::dup2(fd, STDERR_FILENO);
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }
  return daemon;
}

absl::StatusOr<DaemonProcess> DaemonProcess::Start(const Options& options) {
  DaemonProcess daemon = Spawn(options);
  if (daemon.WaitReady()) return daemon;
  return absl::InternalError(
      fmt::format("kvistd did not start (exit {}): {}", daemon.exit_.value_or(-1), daemon.Log()));
}

DaemonProcess::DaemonProcess(DaemonProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)), log_path_(std::move(other.log_path_)), exit_(other.exit_) {}

DaemonProcess& DaemonProcess::operator=(DaemonProcess&& other) noexcept {
  Kill();
  pid_ = std::exchange(other.pid_, -1);
  log_path_ = std::move(other.log_path_);
  exit_ = other.exit_;
  return *this;
}

DaemonProcess::~DaemonProcess() { Kill(); }

std::string DaemonProcess::Log() const {
  std::ifstream file(log_path_);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

bool DaemonProcess::WaitReady(absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  while (absl::Now() < deadline) {
    if (Log().find("ready: ") != std::string::npos) return true;
    if (WaitExit(absl::ZeroDuration()).has_value()) return false;
    absl::SleepFor(absl::Milliseconds(5));
  }
  return false;
}

std::optional<int> DaemonProcess::WaitExit(absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  while (!exit_.has_value() && pid_ > 0) {
    int status = 0;
    if (::waitpid(pid_, &status, WNOHANG) == pid_) {
      exit_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      pid_ = -1;
      break;
    }
    if (absl::Now() >= deadline) break;
    absl::SleepFor(absl::Milliseconds(5));
  }
  return exit_;
}

void DaemonProcess::Kill() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  WaitExit(absl::InfiniteDuration());
}

void DaemonProcess::Pause() {
  ::kill(pid_, SIGSTOP);
  int status = 0;
  ::waitpid(pid_, &status, WUNTRACED);  // the signal takes effect some time after kill() returns
}

void DaemonProcess::Resume() { ::kill(pid_, SIGCONT); }

std::optional<int> DaemonProcess::Terminate() {
  if (pid_ > 0) ::kill(pid_, SIGTERM);
  return WaitExit();
}

}  // namespace kvist::testing
