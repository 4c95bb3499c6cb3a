// kvist: the command line. Results go to stdout, everything else to stderr; an error is one line, "kvist: …".
#include <cstdio>
#include <string>
#include <string_view>

#include "CLI/CLI.hpp"
#include "cachestore/lock_order_checks.h"
#include "fmt/format.h"
#include "tools/cli/command.h"

namespace kvist::cli {
namespace {

constexpr const char* kFooter =
    "Exit codes: 0 done; 1 failed; 2 bad flags or prompt; 3 model file unusable; 4 store unusable.";

int Report(const Outcome& outcome) {
  if (outcome.code != ExitCode::kOk) fmt::print(stderr, "kvist: {}\n", outcome.message);
  return static_cast<int>(outcome.code);
}

// CLI11's messages span lines where several flags are wrong; an error of ours is one line.
std::string OneLine(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  for (char& c : text) {
    if (c == '\n') c = ' ';
  }
  return text;
}

int Main(int argc, char** argv) {
  SkipLockOrderChecks();
  CLI::App app("Kvist: prompts whose KV cache is kept, and found again.", "kvist");
  app.require_subcommand(1);
  app.footer(kFooter);
  const Command commands[] = {AddGenerate(app), AddStatus(app), AddLs(app), AddDrop(app), AddFsck(app)};
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& asked_for_help) {
    return app.exit(asked_for_help);
  } catch (const CLI::ParseError& error) {
    return Report(Outcome::Failure(ExitCode::kUsage, OneLine(error.what()) + " (kvist --help shows the flags)"));
  }
  for (const Command& command : commands) {
    if (command.app->parsed()) return Report(command.run());
  }
  return Report(Outcome::Failure(ExitCode::kUsage, "no command given (kvist --help shows them)"));
}

}  // namespace
}  // namespace kvist::cli

int main(int argc, char** argv) { return kvist::cli::Main(argc, argv); }
