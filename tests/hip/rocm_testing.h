// What the tests of the ROCm module on the stand-in share.
#pragma once

#include <cstdlib>
#include <string>
#include <string_view>

#include "tests/hip/stand_in.h"

namespace tests {

inline const char* const kModules = VLLM_BINARY_DIR "/examples";
inline const char* const kArchs[] = {"gfx1200", "gfx1100", "gfx942"};

// Whether this build has code for it.
inline bool IsBuilt(const std::string& arch) {
  return std::string_view("," HIP_ARCHS ",").find("," + arch + ",") != std::string_view::npos;
}

// Before the first call of the stand-in.
inline void UseStandIn(const char* arch) {
  setenv("VLLM_HIP_LIBRARY", HIP_STAND_IN, 1);
  setenv("HIP_STAND_IN_ARCH", arch, 1);
}

}  // namespace tests
