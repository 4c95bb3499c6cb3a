// Random sequences of operations on a whole LocalStore, compared with a model. A failing one is shrunk and printed as a
// list that KVIST_REPLAY takes. KVIST_SEQUENCES (1500) sets how many, KVIST_SEED (a number, or random) which.
#include <array>
#include <cstdlib>
#include <random>

#include "gtest/gtest.h"
#include "spdlog/spdlog.h"
#include "tests/environment.h"
#include "tests/property/shrink.h"
#include "tests/property/store_run.h"

namespace kvist::property {
namespace {

constexpr std::size_t kOpsPerSequence = 40;
// Sequences on one store, with a drop of all in between: opening one is what takes time.
constexpr std::size_t kSequencesPerStore = 12;
constexpr int kShrinkAttemptsMax = 400;

std::vector<Op> RandomOps(std::mt19937_64& random) {
  // By weight: mostly what engines do all the time.
  static constexpr Kind kMix[] = {Kind::kCommit,  Kind::kCommit,  Kind::kCommit,  Kind::kCommit,  Kind::kCommit,
                                  Kind::kCommit,  Kind::kCommit,  Kind::kCommit,  Kind::kCommit,  Kind::kCommit,
                                  Kind::kAcquire, Kind::kAcquire, Kind::kAcquire, Kind::kAcquire, Kind::kMatch,
                                  Kind::kMatch,   Kind::kTouch,   Kind::kPin,     Kind::kUnpin,   Kind::kAdvance,
                                  Kind::kAdvance, Kind::kSweep,   Kind::kFlush,   Kind::kFault,   Kind::kMend};
  std::vector<Op> ops;
  for (std::size_t sequence = 0; sequence < kSequencesPerStore; ++sequence) {
    for (std::size_t i = 0; i < kOpsPerSequence; ++i) {
      Op op;
      op.kind = kMix[random() % std::size(kMix)];
      if (random() % 100 == 0) op.kind = Kind::kReopen;
      if (random() % 50 == 0) op.kind = Kind::kDrop;
      op.tenant = static_cast<std::uint32_t>(random() % kTenants);
      // Any depth as likely as another.
      const std::uint64_t depth = 1 + random() % kDepthMax;
      op.path = static_cast<std::uint32_t>((1ULL << depth) + random() % (1ULL << depth));
      op.argument = static_cast<std::uint32_t>(random() % 8);
      ops.push_back(op);
    }
    ops.push_back({Kind::kDropAll, 0, 0, 0});
  }
  return ops;
}

class LocalStoreProperty : public testing::TestWithParam<Mode> {
 protected:
  LocalStoreProperty() { spdlog::set_level(spdlog::level::off); }
  ~LocalStoreProperty() override { spdlog::set_level(spdlog::level::info); }

  static void Report(const Config& config, const std::vector<Op>& ops, const std::string& fault) {
    const auto shortest = Shrink<Op>(
        ops, [&](const std::vector<Op>& less) { return !RunOps(config, less).empty(); }, kShrinkAttemptsMax);
    FAIL() << fault << "\nshrunk to " << shortest.size() << " operations: " << RunOps(config, shortest)
           << "\nKVIST_REPLAY='" << ToText(shortest) << "'";
  }
};

std::string NameOf(const testing::TestParamInfo<Mode>& mode) {
  static constexpr const char* kNames[] = {"Ample", "Tight", "Faulty"};
  return kNames[static_cast<std::size_t>(mode.param)];
}

INSTANTIATE_TEST_SUITE_P(Modes, LocalStoreProperty, testing::Values(Mode::kAmple, Mode::kTight, Mode::kFaulty), NameOf);

TEST_P(LocalStoreProperty, DoesWhatTheModelDoes) {
  const Config config{GetParam()};
  if (const char* replay = std::getenv("KVIST_REPLAY")) {
    EXPECT_EQ(RunOps(config, FromText(replay)), "");
    return;
  }
  const std::uint64_t seed = TestSeed();
  SCOPED_TRACE(testing::Message() << "KVIST_SEED=" << seed);
  std::mt19937_64 random(seed);
  const std::uint64_t stores = FromEnvironment("KVIST_SEQUENCES", 1500) / 3 / kSequencesPerStore + 1;
  for (std::uint64_t i = 0; i < stores && !HasFatalFailure(); ++i) {
    const std::vector<Op> ops = RandomOps(random);
    const std::string fault = RunOps(config, ops);
    if (!fault.empty()) Report(config, ops, fault);
  }
}

TEST(LocalStorePropertyItself, FindsAPlantedFaultAndShrinksIt) {
  const Config config{Mode::kAmple, /*forget_drops=*/true};
  std::mt19937_64 random(1);
  const std::vector<Op> ops = RandomOps(random);
  ASSERT_NE(RunOps(config, ops), "");
  const auto shortest = Shrink<Op>(
      ops, [&](const std::vector<Op>& less) { return !RunOps(config, less).empty(); }, kShrinkAttemptsMax);
  EXPECT_LE(shortest.size(), 3u) << ToText(shortest);  // a commit and a drop; the last look finds it
  EXPECT_EQ(ToText(FromText(ToText(shortest))), ToText(shortest));
}

}  // namespace
}  // namespace kvist::property
