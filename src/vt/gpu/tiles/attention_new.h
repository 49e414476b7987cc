// A head's row of q, k or v as lanes hold it, eight values each: its norm, its rotation, and its
// place in the cache.
#pragma once

#include "vt/gpu/tiles/attention_common.h"

namespace vt::gpu {

// Eight values as they are loaded, two a word.
struct Eight {
  ::gpu::Pack<uint32_t> words;
};
template <class T>
inline constexpr bool kIsBF16 = KvTypeOf<T>() == kKvBF16;
template <class T>
GPU_FN void ValuesOf(const Eight& e, float (&x)[8]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint32_t w = e.words.v[i];
    if constexpr (kIsBF16<T>) {
      x[2 * i] = ::gpu::float_of(w << 16);
      x[2 * i + 1] = ::gpu::float_of(w & 0xffff0000u);
    } else {
      x[2 * i] = ::gpu::to_float(f16{static_cast<uint16_t>(w)});
      x[2 * i + 1] = ::gpu::to_float(f16{static_cast<uint16_t>(w >> 16)});
    }
  }
}
// The values from `at` on of a row of `dim`; zeros past it.
template <class T>
GPU_FN Eight LoadEight(const T* row, int at, int dim, bool aligned) {
  Eight e = {};
  if (at >= dim) return e;
  if (aligned) return *reinterpret_cast<const Eight*>(row + at);
  for (int i = 0; i < 4; ++i) {
    e.words.v[i] = row[at + 2 * i].bits | static_cast<uint32_t>(row[at + 2 * i + 1].bits) << 16;
  }
  return e;
}

// The norm and the rotation of heads of one token, which kLanes lanes share.
template <int kLanes>
class HeadMaker {
 public:
  GPU_FN HeadMaker(const KvWriteArgs& a, const HeadNorm& norm, const float* table, int position)
      : a_(a),
        norm_(norm),
        table_(table + static_cast<int64_t>(position) * a.rotary_dim),
        at_(::gpu::lane() % kLanes * 8) {}

  // All lanes of a wave together.
  GPU_FN void Make(float (&x)[8]) const {
    const int dim = a_.kv.head_dim;
    if (norm_.weight != nullptr) {
      float squares = 0;
#pragma unroll
      for (int j = 0; j < 8; ++j) squares += x[j] * x[j];
#pragma unroll
      for (int m = kLanes / 2; m > 0; m /= 2) squares += ::gpu::shuffle_xor(squares, m);
      const float scale = ::gpu::rsqrt(squares / static_cast<float>(dim) + norm_.eps);
      const float* w = norm_.weight + (at_ < dim ? at_ : 0);
#pragma unroll
      for (int j = 0; j < 8; ++j) x[j] *= scale * (w[j] + norm_.offset);
    }
    if (a_.rotary_dim == 0) return;
    const bool rotates = at_ < a_.rotary_dim;
    if (a_.interleaved != 0) {
      const float* t = table_ + (rotates ? at_ : 0);
#pragma unroll
      for (int j = 0; j < 8; j += 2) {
        const float c = rotates ? t[j] : 1, s = rotates ? t[j + 1] : 0;
        const float first = x[j];
        x[j] = first * c - x[j + 1] * s;
        x[j + 1] = x[j + 1] * c + first * s;
      }
      return;
    }
    // Value i goes with value i + half, which another lane holds.
    const int half = a_.rotary_dim / 2;
    const bool second = at_ >= half;
    const int other = ::gpu::lane() + (!rotates ? 0 : second ? -half / 8 : half / 8);
    const float* t = table_ + (rotates ? 2 * (second ? at_ - half : at_) : 0);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const float c = rotates ? t[2 * j] : 1, s = rotates ? t[2 * j + 1] : 0;
      const float with = ::gpu::shuffle(x[j], other);
      x[j] = second ? x[j] * c + with * s : x[j] * c - with * s;
    }
  }

 private:
  const KvWriteArgs& a_;
  const HeadNorm& norm_;
  const float* table_;
  int at_;
};

// x as the cache holds it, and stored there where `mine`.
template <class T, bool kSame>
GPU_FN void KeepEight(const KvLayer& kv, const char* place, bool mine, float (&x)[8]) {
  char* to = const_cast<char*>(place);
  if constexpr (kSame) {
    Eight e;
#pragma unroll
    for (int i = 0; i < 4; ++i) e.words.v[i] = ::gpu::pack2(x[2 * i], x[2 * i + 1], T{});
    ValuesOf<T>(e, x);
    if (mine) *reinterpret_cast<Eight*>(to) = e;
  } else {
    char whole[32];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      StoreKv(whole, i, kv.dtype, x[i]);
      if (mine) StoreKv(to, i, kv.dtype, x[i]);
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) x[i] = LoadKv(whole, i, kv.dtype);
  }
}

}  // namespace vt::gpu
