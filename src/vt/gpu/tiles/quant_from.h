// One row by quantised weights, from values: each block quantises the row for itself, in shared
// memory, which costs less than a launch before it.
#pragma once

#include "vt/gpu/tiles/attention_write.h"
#include "vt/gpu/tiles/last_block.h"
#include "vt/gpu/tiles/quant_gemv.h"

namespace vt::gpu {

// What the block's waves will read first is on its way while the row is made.
GPU_FN void PrefetchRow(const QuantFromArgs& a) {
  const QuantGemvArgs& l = a.linear;
  const int waves = l.parts.by * l.groups.by;
  const int unit = ::gpu::block() * l.groups.by + ::gpu::wave() / l.parts.by;
  int s = 0;
#pragma unroll
  for (int i = 1; i < kQuantSegments; ++i)
    if (i < l.segment_count && unit >= l.segments[i].first_unit) s = i;
  const QuantSegment& segment = l.segments[s];
  const int row = (unit - segment.first_unit) * kQuantUnit;
  if (unit >= l.units || row >= segment.w.rows || ::gpu::wave() >= waves) return;
  const int64_t bytes = int64_t{l.x.blocks} * a.low_bytes[s];
  const char* from = segment.w.planes.low + row * bytes;
  const int64_t size = row + 1 < segment.w.rows ? kQuantUnit * bytes : bytes;
  for (int64_t at = ::gpu::lane() * 128; at < size; at += ::gpu::kWave * 128)
    ::gpu::prefetch(from + at);
}

// The row, quantised, in shared memory.
template <class T>
GPU_FN QuantRows RowInBlock(const QuantFromArgs& a) {
  constexpr int kN = kQuantizeValues;
  QuantRows y;
  y.blocks = a.linear.x.blocks;
  y.codes = reinterpret_cast<int8_t*>(::gpu::shared()) + a.x_offset;
  y.sums = reinterpret_cast<QuantSum*>(y.codes + y.blocks * 32);
  const int width = y.blocks * 32;
  const auto load = [&](int at, float(&v)[kN], bool) {
    RowRefOf<T, false>(a.x, 0).load(at, kN, v);
  };
  if (a.norm.w != nullptr) {
    NormRow(
        a.norm, width, reinterpret_cast<float*>(::gpu::shared()), [] { return true; }, load,
        [&](int at, const float(&v)[kN], bool live) { QuantizeValues(v, y, 0, at, live); });
  } else {
    // Waves go on together.
    for (int first = ::gpu::wave() * ::gpu::kWave * kN; first < width;
         first += ::gpu::threads() * kN) {
      const int at = first + ::gpu::lane() * kN;
      float v[kN] = {};
      if (at < width) {
        load(at, v, true);
        ApplyFn(a.fn, 1, 0, v);
        if (a.b.rows.base != nullptr) {
          float b[kN];
          RowRefOf<T, false>(a.b, 0).load(at, kN, b);
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

template <class T>
GPU_FN void QuantGemvFrom(const QuantFromArgs& a) {
  ::gpu::launch_dependents();
  PrefetchRow(a);
  ::gpu::wait_predecessor();
  const QuantRows x = RowInBlock<T>(a);
  QuantGemv<1>(a.linear).RunFrom(x, 0, [] {});
}

// Attention begins on what was there before the launch before it had waited: so wait, then let it.
template <class T>
GPU_FN void QuantHeads(const QuantHeadsArgs& a) {
  PrefetchRow(a.from);
  ::gpu::wait_predecessor();
  ::gpu::launch_dependents();
  const QuantRows x = RowInBlock<T>(a.from);
  QuantGemv<1>(a.from.linear).RunFrom(x, 0, [] {});
  const int head = ::gpu::block() / a.head_blocks;
  if (!LastOf(a.counters + head, a.head_blocks, reinterpret_cast<int*>(::gpu::shared()))) return;
  if (::gpu::wave() == 0) {
    const float* raw = a.raw + head * a.write.kv.head_dim;
    WriteHead<T>(a.write, 0, head, reinterpret_cast<float*>(::gpu::shared()),
                 [&](int d, float(&v)[4]) {
#pragma unroll
                   for (int i = 0; i < 4; ++i) v[i] = ::gpu::load_volatile(raw + d + i);
                 });
  }
}

}  // namespace vt::gpu
