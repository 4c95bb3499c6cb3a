// A directory for one test, removed afterwards. Short, because UNIX socket paths are.
#pragma once

#include <filesystem>
#include <string>

namespace kvist::testing {

class Scratch {
 public:
  Scratch();
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  std::string path(const std::string& name) const { return (directory_ / name).string(); }

 private:
  std::filesystem::path directory_;
};

}  // namespace kvist::testing
