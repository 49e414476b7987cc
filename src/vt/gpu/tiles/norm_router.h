// A norm, its row, quantised or not, and the experts that it goes to, in one launch: a block makes
// the row, in the others a wave has a row of the router's matrix, and the block that comes last
// chooses, unless the next launch does.
#pragma once

#include "vt/gpu/tiles/experts.h"
#include "vt/gpu/tiles/last_block.h"
#include "vt/gpu/tiles/quantize.h"

namespace vt::gpu {

// A row of T, asked for long before x is there. The norm's factor is one for all of x: it comes
// last, so that a wave sums up squares and products of x at once and waits for no other.
template <class T>
class NormedProduct {
 public:
  GPU_FN NormedProduct(const T* w, const RowNorm& norm, int width)
      : w_(w), norm_(norm), width_(width) {
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      held_[i] = {};
      if (At(i) < width) held_[i] = *reinterpret_cast<const ::gpu::Pack<T>*>(w + At(i));
    }
    constexpr int kLine = 128 / sizeof(T);
    for (int at = kHeld * ::gpu::kWave * kN + ::gpu::lane() * kLine; at < width;
         at += ::gpu::kWave * kLine)
      ::gpu::prefetch(w + at);
    for (int at = ::gpu::thread() * 32; at < width; at += ::gpu::threads() * 32)
      ::gpu::prefetch_near(norm.w + at);
  }

  // With the normed x.
  GPU_FN float With(const RowRef<T, false>& x) const {
    float sum = 0, squares = 0;
    const auto add = [&](const float(&v)[kN], const ::gpu::Pack<T>& w, int at) {
      float n[kN];
      LoadValues<true>(norm_.w + at, kN, n);
#pragma unroll
      for (int j = 0; j < kN; ++j) {
        sum += v[j] * (::gpu::to_float(w.v[j]) * (n[j] + norm_.offset));
        squares += v[j] * v[j];
      }
    };
    if (!x.is_f32() && IsAligned(x.p)) {
      // All of it is under way before the first is there.
      ::gpu::Pack<T> v[kHeld] = {};
#pragma unroll
      for (int i = 0; i < kHeld; ++i)
        if (At(i) < width_)
          v[i] = *reinterpret_cast<const ::gpu::Pack<T>*>(x.p + At(i) * sizeof(T));
#pragma unroll
      for (int i = 0; i < kHeld; ++i) {
        float values[kN];
#pragma unroll
        for (int j = 0; j < kN; ++j) values[j] = ::gpu::to_float(v[i].v[j]);
        if (At(i) < width_) add(values, held_[i], At(i));
        // Not all of the norm's weights at once: a block needs few registers to begin beside
        // another kernel's.
        if (i % 2 == 1) ::gpu::sync_wave();
      }
    } else {
#pragma unroll
      for (int i = 0; i < kHeld; ++i) {
        if (At(i) >= width_) continue;
        float v[kN];
        x.load(At(i), kN, v);
        add(v, held_[i], At(i));
      }
    }
#pragma unroll 1
    for (int at = At(kHeld); at < width_; at += ::gpu::kWave * kN) {
      float v[kN];
      x.load(at, kN, v);
      add(v, *reinterpret_cast<const ::gpu::Pack<T>*>(w_ + at), at);
    }
    sum = ::gpu::wave_sum(sum);
    squares = ::gpu::wave_sum(squares);
    return sum * ::gpu::rsqrt(squares / static_cast<float>(width_) + norm_.eps);
  }

 private:
  static constexpr int kN = kChunk<T>, kHeld = 8;
  GPU_FN static int At(int i) { return (i * ::gpu::kWave + ::gpu::lane()) * kN; }

  const T* w_;
  const RowNorm& norm_;
  int width_;
  ::gpu::Pack<T> held_[kHeld];
};

template <class T>
GPU_FN void MakeNormedRow(const NormRouterArgs& a, int token) {
  constexpr int kN = kQuantizeValues;
  NormRow(
      a.norm, a.width, reinterpret_cast<float*>(::gpu::shared()),
      [&] {
        ::gpu::wait_predecessor();
        return token < CountOf(a.router.header, a.router.count);
      },
      [&](int at, float(&v)[kN], bool) { RowRefOf<T, false>(a.x, token).load(at, kN, v); },
      [&](int at, const float(&v)[kN], bool live) {
        if (a.row.base == nullptr) {
          QuantizeValues(v, a.y, token, at, live);
        } else if (live) {
          StoreValues<true>(RowOf<T>(a.row, token) + at, kN, v);
        }
      });
}

template <class T>
GPU_FN void NormRouter(const NormRouterArgs& a) {
  const RouterArgs& r = a.router;
  const int token = ::gpu::block_y(), blocks = ::gpu::blocks() - 1;
  ::gpu::launch_dependents();
  if (::gpu::block() == blocks) return MakeNormedRow<T>(a, token);

  const int row = ::gpu::block() * ::gpu::waves() + ::gpu::wave();
  const bool is_gate = row == r.experts && a.gate_w != nullptr;
  const T* w = is_gate ? static_cast<const T*>(a.gate_w)
                       : static_cast<const T*>(a.w) + static_cast<int64_t>(row) * a.pitch;
  const bool exists = row < r.experts || is_gate;
  const NormedProduct<T> product(w, a.norm, exists ? a.width : 0);
  ::gpu::wait_predecessor();
  if (token >= CountOf(r.header, r.count)) return;
  float* logits = a.logits + token * r.experts;
  if (exists) {
    float v[1] = {product.With(RowRefOf<T, false>(a.x, token))};
    if (::gpu::lane() == 0) {
      if (is_gate) {
        ApplyFn(a.gate_fn, 1, 0, v);
        RowRefOf<T, false>(a.gate, token).set(0, v[0]);
      } else {
        logits[row] = v[0];
      }
    }
  }
  if (a.chooses == 0) return;
  float* room = reinterpret_cast<float*>(::gpu::shared());
  if (!LastOf(a.counters + token, blocks, reinterpret_cast<int*>(room)) || ::gpu::wave() != 0)
    return;
  if (r.in_lanes != 0) {
    ChooseInLanes(r, logits, token);
    return;
  }
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
      if (e + i * ::gpu::kWave < r.experts) room[e + i * ::gpu::kWave] = v[i];
  }
  ::gpu::sync_wave();
  RouterTile(r, room + r.experts).Run(token, room);
}

}  // namespace vt::gpu
