// A norm, its row, quantised or not, and the experts that it goes to, in one launch: each block
// norms the row for itself, a wave has a row of the router's matrix, and the block that comes last
// chooses.
#pragma once

#include "vt/gpu/tiles/experts.h"
#include "vt/gpu/tiles/last_block.h"
#include "vt/gpu/tiles/quantize.h"

namespace vt::gpu {

// A row of T by values in shared memory, over the wave. The first chunks of the row are held in
// registers, asked for long before.
template <class T>
class HeldRow {
 public:
  GPU_FN HeldRow(const T* w, int width) : w_(w), width_(width) {
#pragma unroll
    for (int i = 0; i < kHeld; ++i)
      if (At(i) < width) held_[i] = *reinterpret_cast<const ::gpu::Pack<T>*>(w + At(i));
    for (int at = ::gpu::lane() * (128 / sizeof(T)) + At(kHeld) - At(0); at < width;
         at += ::gpu::kWave * (128 / sizeof(T)))
      ::gpu::prefetch(w + at);
  }
  GPU_FN float Dot(const float* h) const {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kHeld; ++i)
      if (At(i) < width_) sum += DotOf(held_[i], h + At(i));
#pragma unroll 4
    for (int at = At(kHeld); at < width_; at += ::gpu::kWave * kN)
      sum += DotOf(*reinterpret_cast<const ::gpu::Pack<T>*>(w_ + at), h + at);
    return ::gpu::wave_sum(sum);
  }

 private:
  static constexpr int kN = kChunk<T>, kHeld = 8;
  GPU_FN static int At(int i) { return (i * ::gpu::kWave + ::gpu::lane()) * kN; }
  GPU_FN static float DotOf(const ::gpu::Pack<T>& w, const float* h) {
    float v[kN], sum = 0;
    LoadValues<true>(h, kN, v);
#pragma unroll
    for (int i = 0; i < kN; ++i) sum += ::gpu::to_float(w.v[i]) * v[i];
    return sum;
  }

  const T* w_;
  int width_;
  ::gpu::Pack<T> held_[kHeld] = {};
};

template <class T>
GPU_FN void NormRouter(const NormRouterArgs& a) {
  constexpr int kN = kQuantizeValues;
  const RouterArgs& r = a.router;
  const int token = ::gpu::block_y(), width = a.width;
  float* scratch = reinterpret_cast<float*>(::gpu::shared());
  float* h = scratch + kRowsScratch;
  const int row = ::gpu::block() * ::gpu::waves() + ::gpu::wave();
  const bool is_gate = row == r.experts && a.gate_w != nullptr;
  const T* w = is_gate ? static_cast<const T*>(a.gate_w)
                       : static_cast<const T*>(a.w) + static_cast<int64_t>(row) * a.pitch;
  const bool exists = row < r.experts || is_gate;
  const HeldRow<T> held(w, exists ? width : 0);
  ::gpu::launch_dependents();
  bool live = true;
  NormRow(
      a.norm, width, scratch,
      [&] {
        ::gpu::wait_predecessor();
        live = token < CountOf(r.header, r.count);
        return live;
      },
      [&](int at, float(&v)[kN], bool) { RowRefOf<T, false>(a.x, token).load(at, kN, v); },
      [&](int at, const float(&v)[kN], bool live_values) {
        if (live_values) StoreValues<true>(h + at, kN, v);
        if (::gpu::block() != 0) return;
        if (a.row.base == nullptr) {
          QuantizeValues(v, a.y, token, at, live_values);
        } else if (live_values) {
          StoreValues<true>(RowOf<T>(a.row, token) + at, kN, v);
        }
      });
  if (!live) return;
  ::gpu::sync();
  float* logits = a.logits + token * r.experts;
  if (exists) {
    float v[1] = {held.Dot(h)};
    if (::gpu::lane() == 0) {
      if (is_gate) {
        ApplyFn(a.gate_fn, 1, 0, v);
        RowRefOf<T, false>(a.gate, token).set(0, v[0]);
      } else {
        logits[row] = v[0];
      }
    }
  }
  if (!LastOf(a.counters + token, ::gpu::blocks(), reinterpret_cast<int*>(scratch)) ||
      ::gpu::wave() != 0)
    return;
  // All of them are under way before the first is there.
  constexpr int kMany = 8;
#pragma unroll 1
  for (int e = ::gpu::lane(); e < r.experts; e += kMany * ::gpu::kWave) {
    float v[kMany];
#pragma unroll
    for (int i = 0; i < kMany; ++i)
      v[i] = ::gpu::load_volatile(logits + ::gpu::min(e + i * ::gpu::kWave, r.experts - 1));
#pragma unroll
    for (int i = 0; i < kMany; ++i)
      if (e + i * ::gpu::kWave < r.experts) h[e + i * ::gpu::kWave] = v[i];
  }
  ::gpu::sync_wave();
  RouterTile(r, h + r.experts).Run(token, h);
}

}  // namespace vt::gpu
