// A progress line on stderr, for work of more than a moment. On a terminal one line is rewritten and erased at the
// end; elsewhere, and only if asked for, a plain line is printed now and then. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "cachestore/io/clock.h"

namespace kvist::cli {

class Progress {
 public:
  // `forced`: also where `out` is no terminal. `out` and `clock` must outlive it.
  Progress(std::FILE* out, bool forced, const Clock* clock);
  ~Progress() { Clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Says what goes on; shown at once.
  void Say(std::string_view what);
  // `done` of `total`; shown once the work has run for kPatience, and then at most once per interval.
  void Update(std::string_view what, std::size_t done, std::size_t total);
  // Leaves the line empty for other output. Also at destruction.
  void Clear();

 private:
  // Shorter work needs no progress.
  static constexpr absl::Duration kPatience = absl::Milliseconds(500);
  static constexpr absl::Duration kTerminalInterval = absl::Milliseconds(100);
  static constexpr absl::Duration kPlainInterval = absl::Seconds(1);

  void Show(const std::string& line);

  std::FILE* out_;
  bool terminal_;
  bool enabled_;
  const Clock* clock_;
  bool visible_ = false;
  std::string current_;  // the work that Update reports on
  absl::Duration started_;
  absl::Duration shown_ = -absl::InfiniteDuration();
};

}  // namespace kvist::cli
