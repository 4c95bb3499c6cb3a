#include "tools/cli/progress.h"

#include <unistd.h>

#include "fmt/format.h"

namespace kvist::cli {

Progress::Progress(std::FILE* out, bool forced, const Clock* clock)
    : out_(out),
      terminal_(isatty(fileno(out)) != 0),
      enabled_(terminal_ || forced),
      clock_(clock),
      started_(clock->Monotonic()) {}

void Progress::Say(std::string_view what) {
  if (enabled_) Show(std::string(what));
}

void Progress::Update(std::string_view what, std::size_t done, std::size_t total) {
  if (!enabled_ || total == 0) return;
  const absl::Duration now = clock_->Monotonic();
  if (what != current_) {
    current_ = std::string(what);
    started_ = now;
  }
  if (now - started_ < kPatience || now - shown_ < (terminal_ ? kTerminalInterval : kPlainInterval)) return;
  shown_ = now;
  Show(fmt::format("{}: {} of {} ({} %)", what, done, total, done * 100 / total));
}

void Progress::Show(const std::string& line) {
  if (terminal_) {
    fmt::print(out_, "\r\033[K{}", line);
  } else {
    fmt::print(out_, "{}\n", line);
  }
  std::fflush(out_);
  visible_ = terminal_;
}

void Progress::Clear() {
  if (!visible_) return;
  fmt::print(out_, "\r\033[K");
  std::fflush(out_);
  visible_ = false;
}

}  // namespace kvist::cli
