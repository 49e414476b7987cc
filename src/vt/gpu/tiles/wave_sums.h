// Sums of several values at once over lanes.
#pragma once

#include "vt/gpu/gpu.h"

namespace vt::gpu {

// The sums of N values over each 2 * kMask lanes of the wave, both powers of two, N no more than
// those: lane l of them has the sum of value l / (2 * kMask / N). Half of what a lane has is given
// away in each step.
template <int kMask = ::gpu::kWave / 2, int N>
GPU_FN float SumsOfWave(const float (&v)[N]) {
  if constexpr (kMask == 0) {
    return v[0];
  } else if constexpr (N == 1) {
    const float sum[1] = {v[0] + ::gpu::shuffle_xor(v[0], kMask)};
    return SumsOfWave<kMask / 2>(sum);
  } else {
    const bool upper = (::gpu::lane() & kMask) != 0;
    float sum[N / 2];
#pragma unroll
    for (int i = 0; i < N / 2; ++i) {
      const float give = upper ? v[i] : v[i + N / 2], keep = upper ? v[i + N / 2] : v[i];
      sum[i] = keep + ::gpu::shuffle_xor(give, kMask);
    }
    return SumsOfWave<kMask / 2>(sum);
  }
}

}  // namespace vt::gpu
