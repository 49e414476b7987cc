// The clock that durations are measured by.
#pragma once

#include <chrono>

namespace base {

// Seconds of a clock that never goes back, from an arbitrary start.
inline double Seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace base
