// What every benchmark ends with: one line per figure, `figure ratio goal ok|short`, and a non-zero exit if one is
// short. Ratios are against a reference measured in the same run, alternately, medians on both sides.
#pragma once

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

namespace kvist::bench {

inline double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

class Figures {
 public:
  void AtLeast(const std::string& figure, double ratio, double goal) { Add(figure, ratio, ">=", goal, ratio >= goal); }
  void AtMost(const std::string& figure, double ratio, double goal) { Add(figure, ratio, "<=", goal, ratio <= goal); }

  // Prints the lines; the process's exit status.
  int Report() const {
    for (const std::string& line : lines_) std::printf("%s\n", line.c_str());
    return any_short_ ? 1 : 0;
  }

 private:
  void Add(const std::string& figure, double ratio, const char* relation, double goal, bool ok) {
    char line[256];
    std::snprintf(line, sizeof(line), "%-32s %8.3f %s%g %s", figure.c_str(), ratio, relation, goal,
                  ok ? "ok" : "short");
    lines_.emplace_back(line);
    any_short_ |= !ok;
  }

  std::vector<std::string> lines_;
  bool any_short_ = false;
};

}  // namespace kvist::bench
