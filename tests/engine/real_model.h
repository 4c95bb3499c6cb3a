// The real model that golden and end-to-end tests run on. Any thread.
#pragma once

#include <cstdint>
#include <string>

namespace kvist::engine {

inline constexpr std::uint64_t kRealModelBytes = 98'362'432;  // SmolLM2-135M-Instruct.Q4_1.gguf

// $KVIST_MODEL if it is that file (by size), else models/ in the source tree. Empty if there is none.
std::string RealModelPath();

// What a test that has no model does: skip if $KVIST_ALLOW_NO_MODEL is 1, else fail. The reason, for either.
bool MayRunWithoutModel();
inline constexpr char kNoModelReason[] =
    "the real model is absent: fetch it with tools/setup/fetch-model, or set KVIST_ALLOW_NO_MODEL=1 to skip";

}  // namespace kvist::engine

// At the start of a test or SetUp.
#define KVIST_REQUIRE_REAL_MODEL(path)                 \
  if ((path).empty()) {                                \
    if (::kvist::engine::MayRunWithoutModel()) {       \
      GTEST_SKIP() << ::kvist::engine::kNoModelReason; \
    }                                                  \
    FAIL() << ::kvist::engine::kNoModelReason;         \
  }                                                    \
  static_assert(true)
