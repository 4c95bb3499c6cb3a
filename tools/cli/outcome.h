// How a command ends: the process's exit code and the line that says why. The codes are documented for scripts
// (README, `kvist --help`): they don't change meaning.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace kvist::cli {

enum class ExitCode : int {
  kOk = 0,
  kFailed = 1,  // anything not below
  kUsage = 2,   // flags, or a prompt that cannot be used
  kModel = 3,   // the model file: missing, broken, unsupported
  kStore = 4,   // the store: not there, in use, refused
};

struct Outcome {
  ExitCode code = ExitCode::kOk;
  std::string message;  // empty exactly if kOk

  static Outcome Ok() { return {}; }
  static Outcome Failure(ExitCode code, std::string message) { return {code, std::move(message)}; }
  static Outcome Failure(ExitCode code, const absl::Status& status) { return {code, std::string(status.message())}; }
};

}  // namespace kvist::cli
