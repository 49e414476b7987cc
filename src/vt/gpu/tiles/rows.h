// What tiles that work row by row share: threads dealt to rows, and a row's values taken a chunk
// (16 bytes of T) a thread as f32.
#pragma once

#include "vt/gpu/args_rows.h"
#include "vt/gpu/tiles/common.h"

namespace vt::gpu {

template <class T>
inline constexpr int kChunk = ::gpu::Pack<T>::kCount;

// A thread's row, its rank among the `size` threads that share the row.
struct RowPlace {
  int row, rank, size;
};
GPU_FN RowPlace PlaceOf(const RowWork& w) {
  if (w.lane_bits >= 0) {
    const int i = ::gpu::block() * ::gpu::threads() + ::gpu::thread();
    return {i >> w.lane_bits, i & ((1 << w.lane_bits) - 1), 1 << w.lane_bits};
  }
  if (w.blocks == 1) return {::gpu::block(), ::gpu::thread(), ::gpu::threads()};
  return {::gpu::block() / w.blocks, ::gpu::block() % w.blocks * ::gpu::threads() + ::gpu::thread(),
          w.blocks * ::gpu::threads()};
}

// Over the threads that share a row, which are a part of a wave or a block; all get the result.
// `scratch` as for block_sum; two sums one after the other take two scratches.
GPU_FN float LaneSum(const RowWork& w, float v) {
  for (int m = 1 << w.lane_bits >> 1; m > 0; m /= 2) v += ::gpu::shuffle_xor(v, m);
  return v;
}
GPU_FN float RowSum(const RowWork& w, float v, float* scratch) {
  return w.lane_bits < 0 ? ::gpu::block_sum(v, scratch) : LaneSum(w, v);
}
GPU_FN float RowMax(const RowWork& w, float v, float* scratch) {
  if (w.lane_bits < 0) {
    v = ::gpu::wave_max(v);
    if (::gpu::lane() == 0) scratch[::gpu::wave()] = v;
    ::gpu::sync();
    for (int i = 0; i < ::gpu::waves(); ++i) v = ::gpu::max(v, scratch[i]);
    return v;
  }
  for (int m = 1 << w.lane_bits >> 1; m > 0; m /= 2) v = ::gpu::max(v, ::gpu::shuffle_xor(v, m));
  return v;
}

GPU_FN bool IsAligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

// n values at p (at most N are taken), the rest zeros. Whole and aligned: 16 bytes at a time.
// kPlain: they are.
template <bool kPlain, class S, int N>
GPU_FN void LoadValues(const S* p, int n, float (&v)[N]) {
  constexpr int kPack = ::gpu::Pack<S>::kCount;
  if (kPlain || (n >= N && IsAligned(p))) {
#pragma unroll
    for (int i = 0; i < N / kPack; ++i) {
      const ::gpu::Pack<S> pack = reinterpret_cast<const ::gpu::Pack<S>*>(p)[i];
#pragma unroll
      for (int j = 0; j < kPack; ++j) v[i * kPack + j] = ::gpu::to_float(pack.v[j]);
    }
  } else {
#pragma unroll
    for (int j = 0; j < N; ++j) v[j] = j < n ? ::gpu::to_float(p[j]) : 0.0f;
  }
}
template <bool kPlain, class S, int N>
GPU_FN void StoreValues(S* p, int n, const float (&v)[N]) {
  constexpr int kPack = ::gpu::Pack<S>::kCount;
  if (kPlain || (n >= N && IsAligned(p))) {
#pragma unroll
    for (int i = 0; i < N / kPack; ++i) {
      ::gpu::Pack<S> pack;
#pragma unroll
      for (int j = 0; j < kPack; ++j) pack.v[j] = ::gpu::from_float<S>(v[i * kPack + j]);
      reinterpret_cast<::gpu::Pack<S>*>(p)[i] = pack;
    }
  } else {
#pragma unroll
    for (int j = 0; j < N; ++j) {
      if (j < n) p[j] = ::gpu::from_float<S>(v[j]);
    }
  }
}

// A row of a View: f32 or T. kPlain (args_rows.h): T, and all chunks are whole and aligned.
template <class T, bool kPlain>
struct RowRef {
  char* p;
  bool f32;

  GPU_FN bool is_f32() const { return sizeof(T) == 4 || (!kPlain && f32); }
  template <int N>
  GPU_FN void load(int at, int n, float (&v)[N]) const {
    if (is_f32()) {
      LoadValues<kPlain>(reinterpret_cast<const float*>(p) + at, n, v);
    } else {
      LoadValues<kPlain>(reinterpret_cast<const T*>(p) + at, n, v);
    }
  }
  template <int N>
  GPU_FN void store(int at, int n, const float (&v)[N]) const {
    if (is_f32()) {
      StoreValues<kPlain>(reinterpret_cast<float*>(p) + at, n, v);
    } else {
      StoreValues<kPlain>(reinterpret_cast<T*>(p) + at, n, v);
    }
  }
  GPU_FN float value(int at) const {
    if (is_f32()) return reinterpret_cast<const float*>(p)[at];
    return ::gpu::to_float(reinterpret_cast<const T*>(p)[at]);
  }
  GPU_FN void set(int at, float v) const {
    if (is_f32()) {
      reinterpret_cast<float*>(p)[at] = v;
    } else {
      reinterpret_cast<T*>(p)[at] = ::gpu::from_float<T>(v);
    }
  }
};
template <class T, bool kPlain>
GPU_FN RowRef<T, kPlain> RowRefOf(const View& v, int i) {
  const int64_t first = RowOf<char>(v.rows, i) - static_cast<char*>(v.rows.base);  // in values
  const bool f32 = sizeof(T) == 4 || (!kPlain && v.f32 != 0);
  return {static_cast<char*>(v.rows.base) + first * (f32 ? 4 : static_cast<int>(sizeof(T))), f32};
}

}  // namespace vt::gpu
