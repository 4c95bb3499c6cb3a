#include "tools/cli/progress.h"

#include <cstdio>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "cachestore/io/clock.h"
#include "gtest/gtest.h"

namespace kvist::cli {
namespace {

// What is written to a plain file, as where stderr is redirected.
class ProgressTest : public testing::Test {
 protected:
  std::string Written() {
    std::rewind(file_.get());
    std::string text(4096, '\0');
    text.resize(std::fread(text.data(), 1, text.size(), file_.get()));
    return text;
  }

  FakeClock clock_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_{std::tmpfile(), std::fclose};
};

TEST_F(ProgressTest, SaysNothingWhereThereIsNoTerminal) {
  Progress progress(file_.get(), /*forced=*/false, &clock_);
  progress.Say("loading");
  clock_.Advance(absl::Seconds(10));
  progress.Update("reading", 1, 2);
  progress.Clear();
  EXPECT_EQ(Written(), "");
}

TEST_F(ProgressTest, WaitsBeforeItBothersAnyone) {
  Progress progress(file_.get(), /*forced=*/true, &clock_);
  progress.Update("reading", 1, 4);
  clock_.Advance(absl::Milliseconds(400));
  progress.Update("reading", 2, 4);
  EXPECT_EQ(Written(), "");
  clock_.Advance(absl::Milliseconds(200));
  progress.Update("reading", 3, 4);
  EXPECT_EQ(Written(), "reading: 3 of 4 (75 %)\n");
}

TEST_F(ProgressTest, PrintsOneLineASecondAtMost) {
  Progress progress(file_.get(), /*forced=*/true, &clock_);
  for (std::size_t i = 0; i <= 30; ++i) {
    progress.Update("reading", i, 30);
    clock_.Advance(absl::Milliseconds(100));
  }
  EXPECT_EQ(Written(), "reading: 5 of 30 (16 %)\nreading: 15 of 30 (50 %)\nreading: 25 of 30 (83 %)\n");
}

TEST_F(ProgressTest, TakesAnEmptyTotalForNothingToSay) {
  Progress progress(file_.get(), /*forced=*/true, &clock_);
  clock_.Advance(absl::Seconds(5));
  progress.Update("reading", 0, 0);
  EXPECT_EQ(Written(), "");
}

}  // namespace
}  // namespace kvist::cli
