// Runs a check on every Highway target that this build has and this CPU can run, not only on the best one.
#pragma once

#include <hwy/highway.h>
#include <hwy/targets.h>

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "gtest/gtest.h"
#include "kernels/ops.h"

namespace kvist::kernels {

inline void UseTargets(std::int64_t targets) {  // 0: all again
  hwy::SetSupportedTargetsForTest(targets);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

inline void OnEachTarget(absl::FunctionRef<void(std::int64_t target)> check) {
  UseTargets(0);
  for (std::int64_t left = hwy::SupportedTargets() & (HWY_TARGETS); left != 0; left &= left - 1) {
    const std::int64_t target = left & ~(left - 1);
    SCOPED_TRACE(hwy::TargetName(target));
    UseTargets(target);
    ASSERT_EQ(TargetName(), hwy::TargetName(target));
    check(target);
  }
  UseTargets(0);
}

// The targets whose MulAdd rounds once; they agree bit for bit.
inline constexpr std::int64_t kFusedTargets = HWY_AVX2 | HWY_AVX3 | HWY_AVX3_DL;

}  // namespace kvist::kernels
