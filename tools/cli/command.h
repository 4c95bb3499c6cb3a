// The subcommands of `kvist`, each in its own file. Each Add… declares its flags on `app` and returns what runs it,
// to be called once after parsing.
#pragma once

#include <functional>

#include "CLI/CLI.hpp"
#include "tools/cli/outcome.h"

namespace kvist::cli {

struct Command {
  CLI::App* app = nullptr;  // owned by its parent
  std::function<Outcome()> run;
};

Command AddGenerate(CLI::App& parent);
Command AddStatus(CLI::App& parent);
Command AddLs(CLI::App& parent);
Command AddDrop(CLI::App& parent);
Command AddFsck(CLI::App& parent);

}  // namespace kvist::cli
