// One row by quantised weights, from values: each block quantises the row for itself, in shared
// memory, which costs less than a launch before it.
#pragma once

#include "vt/gpu/tiles/quant_gemv.h"

namespace vt::gpu {

// A chunk of a row of whichever type.
GPU_FN void LoadChunk(const TypedRow& row, int at, float (&v)[kQuantizeValues]) {
  if (row.aligned == 0) {
#pragma unroll 1
    for (int i = 0; i < kQuantizeValues; ++i)
      PushBack(v, LoadAt(AddressOf({const_cast<void*>(row.p)}, row.type, 0, at + i), row.type));
  } else if (row.type == ValueType::kF32) {
    LoadValues<true>(static_cast<const float*>(row.p) + at, kQuantizeValues, v);
  } else if (row.type == ValueType::kBF16) {
    LoadValues<true>(static_cast<const ::gpu::bf16*>(row.p) + at, kQuantizeValues, v);
  } else {
    LoadValues<true>(static_cast<const ::gpu::f16*>(row.p) + at, kQuantizeValues, v);
  }
}

// The row, quantised, in shared memory. `wait` is called where the norm's first weights are under
// way.
template <class Wait>
GPU_FN QuantRows RowInBlock(const QuantFromArgs& a, Wait wait) {
  constexpr int kN = kQuantizeValues;
  QuantRows y;
  y.blocks = a.linear.x.blocks;
  y.codes = reinterpret_cast<int8_t*>(::gpu::shared()) + a.x_offset;
  y.sums = reinterpret_cast<QuantSum*>(y.codes + y.blocks * 32);
  const int width = y.blocks * 32;
  if (a.norm.w != nullptr) {
    NormRow(
        a.norm, width, reinterpret_cast<float*>(::gpu::shared()),
        [&] {
          wait();
          return true;
        },
        [&](int at, float(&v)[kN], bool) { LoadChunk(a.x, at, v); },
        [&](int at, const float(&v)[kN], bool live) { QuantizeValues(v, y, 0, at, live); });
  } else {
    wait();
    // Waves go on together.
#pragma unroll 1
    for (int first = ::gpu::wave() * ::gpu::kWave * kN; first < width;
         first += ::gpu::threads() * kN) {
      const int at = first + ::gpu::lane() * kN;
      float v[kN] = {};
      if (at < width) {
        LoadChunk(a.x, at, v);
        if (a.b.p != nullptr) {
          float b[kN];
          LoadChunk(a.b, at, b);
          Activate(a.fn, v);
#pragma unroll
          for (int j = 0; j < kN; ++j) v[j] *= b[j];
        }
      }
      QuantizeValues(v, y, 0, at, at < width);
    }
  }
  ::gpu::sync();
  return y;
}

template <class Formats>
GPU_FN void QuantGemvFrom(const QuantFromArgs& a) {
  ::gpu::launch_dependents();
  QuantGemv<Formats, 1, false, false, true> gemv(a.linear);
  gemv.Begin(gemv.UnitsOfGrid(), a.linear.x.blocks);
  gemv.Fetch();
  const QuantRows x = RowInBlock(a, [&] {
    ::gpu::wait_predecessor();
    gemv.Expect(0);
  });
  gemv.Finish(x, 0);
}

}  // namespace vt::gpu
