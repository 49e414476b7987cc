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

// The norm and the rotation of heads of one token, which kLanes lanes share. What they take is
// asked for when this is made: no kernel writes it.
template <int kLanes>
class HeadMaker {
 public:
  // Unless `needed` nothing is read, and Make must not be called.
  GPU_FN HeadMaker(const KvWriteArgs& a, const HeadNorm& norm, const float* table, int position,
                   bool needed)
      : dim_(a.kv.head_dim),
        half_(a.rotary_dim / 2),
        at_(::gpu::lane() % kLanes * 8),
        interleaved_(a.interleaved != 0),
        rotates_(needed && at_ < a.rotary_dim),
        norms_(needed && norm.weight != nullptr),
        eps_(norm.eps),
        offset_(norm.offset) {
    weights_[0] = weights_[1] = {{0, 0, 0, 0}};
#pragma unroll
    for (int i = 0; i < 4; ++i) turns_[i] = {{1, 0, 1, 0}};
    if (norms_) {
      const auto* w = reinterpret_cast<const Pack<float>*>(norm.weight + (at_ < dim_ ? at_ : 0));
      weights_[0] = w[0];
      weights_[1] = w[1];
    }
    if (!rotates_) return;
    const int first = interleaved_ ? at_ : 2 * (Second() ? at_ - half_ : at_);
    const auto* t = reinterpret_cast<const Pack<float>*>(
        table + static_cast<int64_t>(position) * a.rotary_dim + first);
    turns_[0] = t[0];
    turns_[1] = t[1];
    if (interleaved_) return;
    turns_[2] = t[2];
    turns_[3] = t[3];
  }

  // All lanes of a wave together.
  GPU_FN void Make(float (&x)[8]) const {
    if (norms_) {
      float squares = 0;
#pragma unroll
      for (int j = 0; j < 8; ++j) squares += x[j] * x[j];
#pragma unroll
      for (int m = kLanes / 2; m > 0; m /= 2) squares += ::gpu::shuffle_xor(squares, m);
      const float scale = ::gpu::rsqrt(squares / static_cast<float>(dim_) + eps_);
#pragma unroll
      for (int j = 0; j < 8; ++j) x[j] *= scale * (weights_[j / 4].v[j % 4] + offset_);
    }
    if (half_ == 0) return;
    if (interleaved_) {
#pragma unroll
      for (int j = 0; j < 8; j += 2) {
        const float c = turns_[j / 4].v[j % 4], s = turns_[j / 4].v[j % 4 + 1];
        const float first = x[j];
        x[j] = first * c - x[j + 1] * s;
        x[j + 1] = x[j + 1] * c + first * s;
      }
      return;
    }
    // Value i goes with value i + half, which another lane holds.
    const bool second = Second();
    const int other = ::gpu::lane() + (!rotates_ ? 0 : second ? -half_ / 8 : half_ / 8);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const float c = turns_[j / 2].v[j % 2 * 2], s = turns_[j / 2].v[j % 2 * 2 + 1];
      const float with = ::gpu::shuffle(x[j], other);
      x[j] = second ? x[j] * c + with * s : x[j] * c - with * s;
    }
  }

 private:
  GPU_FN bool Second() const { return at_ >= half_; }

  int dim_, half_, at_;
  bool interleaved_, rotates_, norms_;
  float eps_, offset_;
  Pack<float> weights_[2], turns_[4];  // turns: (cos, sin) of pairs
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
