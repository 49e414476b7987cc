// Softmax and its logarithm over rows of any width: one pass for the largest value and the sum
// beside it, one that writes.
#pragma once

#include "vt/gpu/tiles/rows.h"

namespace vt::gpu {

template <class T>
GPU_FN void SoftmaxRows(const RowsSoftmaxArgs& a) {
  constexpr int kN = kChunk<T>;
  const float kLow = ::gpu::float_of(0xff800000u);  // -infinity
  const RowPlace place = PlaceOf(a.work);
  float* scratch = reinterpret_cast<float*>(::gpu::shared());
  const int count = CountOf(a.work.header, a.work.count);
  ::gpu::launch_dependents();
  ::gpu::wait_predecessor();
  const bool live = place.row < count;
  if (!live && a.work.lane_bits < 0) return;  // else its wave still sums together
  const int width = live ? a.work.width : 0;
  const int row = live ? place.row : 0;
  const RowRef<T, false> x = RowRefOf<T, false>(a.x, row), y = RowRefOf<T, false>(a.y, row);
  const int first = place.rank * kN, step = place.size * kN;

  float high = kLow, sum = 0;
  for (int at = first; at < width; at += step) {
    float v[kN];
    x.load(at, width - at, v);
    float most = high;
#pragma unroll
    for (int j = 0; j < kN; ++j) {
      if (at + j < width) most = ::gpu::max(v[j], most);
    }
    if (most == kLow) continue;  // nothing yet that is possible
    sum *= ::gpu::exp(high - most);
    high = most;
#pragma unroll
    for (int j = 0; j < kN; ++j) {
      if (at + j < width) sum += ::gpu::exp(v[j] - high);
    }
  }
  const float most = RowMax(a.work, high, scratch + kRowsScratch);
  sum = RowSum(a.work, high == kLow ? 0.0f : sum * ::gpu::exp(high - most), scratch);
  // A row in which nothing is possible: zeros, never NaN.
  const bool none = most == kLow;
  const float scale = none ? 0.0f : 1 / sum, shift = none ? 0.0f : ::gpu::log(sum);
  for (int at = first; at < width; at += step) {
    float v[kN];
    x.load(at, width - at, v);
#pragma unroll
    for (int j = 0; j < kN; ++j) {
      const float d = none ? kLow : v[j] - most;
      v[j] = a.logarithm != 0 ? d - shift : ::gpu::exp(d) * scale;
    }
    y.store(at, width - at, v);
  }
}

}  // namespace vt::gpu
