// A real kvistd in a process of its own. Killed and reaped on destruction.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace kvist::testing {

class DaemonProcess {
 public:
  struct Options {
    std::string socket;
    std::string directory;
    std::vector<std::string> settings = {};  // "store.dram=64MiB"; small sizes are set already
  };

  // Starts it and waits until it serves; an error holds its exit status and log.
  static absl::StatusOr<DaemonProcess> Start(const Options& options);
  // Starts it without waiting.
  static DaemonProcess Spawn(const Options& options);

  DaemonProcess(DaemonProcess&& other) noexcept;
  DaemonProcess& operator=(DaemonProcess&& other) noexcept;
  ~DaemonProcess();

  // True once its log says "ready"; false when it exited first.
  bool WaitReady(absl::Duration timeout = absl::Seconds(60));
  // Its exit status (128 + signal if killed); nullopt after the timeout.
  std::optional<int> WaitExit(absl::Duration timeout = absl::Seconds(60));

  void Kill();                     // SIGKILL, and waits
  std::optional<int> Terminate();  // SIGTERM, and waits
  void Pause();                    // SIGSTOP; it has stopped when this returns
  void Resume();                   // SIGCONT
  pid_t pid() const { return pid_; }
  std::string Log() const;

 private:
  DaemonProcess() = default;
  pid_t pid_ = -1;
  std::string log_path_;
  std::optional<int> exit_;
};

}  // namespace kvist::testing
