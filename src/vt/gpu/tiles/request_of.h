// Which request a token of a step belongs to.
#pragma once

#include "vt/gpu/gpu.h"

namespace vt::gpu {

// The request of a token of the step: the last that begins at or before it.
GPU_FN int RequestOf(const int32_t* query_start, int requests, int token) {
  int low = 0, high = requests - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (query_start[middle] <= token) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

}  // namespace vt::gpu
