// A real second process, whose standard output is read line by line and which can be killed at any point.
#pragma once

#include <sys/types.h>

#include <cstdio>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace kvist {

class ChildProcess {
 public:
  // `command`: the program and its arguments. `environment` is added to ours.
  explicit ChildProcess(std::vector<std::string> command, const std::map<std::string, std::string>& environment = {});
  ~ChildProcess();  // killed if still running
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  // The next line that starts with `prefix`, without it; nullopt at the end of output.
  std::optional<std::string> ReadLine(const std::string& prefix);
  void Kill();  // SIGKILL, and waits for it
  int Wait();   // its exit code; -1 if a signal ended it

 private:
  pid_t pid_ = -1;
  std::FILE* output_ = nullptr;
};

}  // namespace kvist
