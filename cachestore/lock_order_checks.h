// Debian builds Abseil so that every lock is checked against the order of all others at run time, under one lock of the
// whole process. A program turns that off before its first thread; tests keep it on.
#pragma once

#include "absl/synchronization/mutex.h"

namespace kvist {

inline void SkipLockOrderChecks() { absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore); }

}  // namespace kvist
