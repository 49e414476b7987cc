// Activations to blocks of 32 int8 with a scale and sums: four lanes a block, eight values a lane,
// so that a wave of 32 has a superblock.
#pragma once

#include "vt/gpu/args_quant.h"
#include "vt/gpu/tiles/rows_map.h"

namespace vt::gpu {

inline constexpr int kQuantizeValues = 8;

// All lanes of a wave together; only what is `live` is stored. Codes are those of
// ir::Quantize(kQ8_A32), bit for bit.
GPU_FN void QuantizeValues(const float (&v)[kQuantizeValues], const QuantRows& y, int row, int at,
                           bool live) {
  float most = 0;
#pragma unroll
  for (int i = 0; i < kQuantizeValues; ++i) {
    const float size = v[i] < 0 ? -v[i] : v[i];
    most = size > most ? size : most;  // NaN never is
  }
#pragma unroll
  for (int m = 1; m < 4; m *= 2) {
    const float other = ::gpu::shuffle_xor(most, m);
    most = other > most ? other : most;
  }
  const float scale = most / 127, inverse = scale == 0 ? 0 : 1 / scale;
  // Added to 1.5 * 2^23 a float is rounded to an integer, half to even, in its low bits.
  constexpr float kRound = 12582912;
  QuantPair codes = {};
  int sum = 0;
#pragma unroll
  for (int i = 0; i < kQuantizeValues; ++i) {
    float x = ::gpu::product(v[i], inverse);
    x = x > -127 ? (x < 127 ? x : 127.0f) : -127.0f;
    const auto code = static_cast<int8_t>(::gpu::bits_of(x + kRound));
    codes.v[i / 4] |= static_cast<uint32_t>(static_cast<uint8_t>(code)) << i % 4 * 8;
    sum += code;
  }
  sum += ::gpu::shuffle_xor(sum, 1);
  const int behind = ::gpu::shuffle_xor(sum, 2);
  if (!live) return;
  const int64_t block = static_cast<int64_t>(row) * y.blocks + at / 32;
  *reinterpret_cast<QuantPair*>(y.codes + block * 32 + at % 32) = codes;
  if (at % 32 == 0) {
    const QuantPair sums = {
        {::gpu::bits_of(scale),
         static_cast<uint16_t>(sum) | static_cast<uint32_t>(static_cast<uint16_t>(behind)) << 16}};
    *reinterpret_cast<QuantPair*>(y.sums + block) = sums;
  }
}

// Of one value, the usual one first: what is rare is fetched only where it is run.
GPU_FN float Activation(RowFn fn, float x) {
  if (fn == RowFn::kSilu) return x / (1 + ::gpu::exp(-x));
  float v[1] = {x};
  ApplyFn(fn, 1, 0, v);
  return v[0];
}
// A loop over registers: values move on.
GPU_FN void PushBack(float (&v)[kQuantizeValues], float last) {
#pragma unroll
  for (int j = 1; j < kQuantizeValues; ++j) v[j - 1] = v[j];
  v[kQuantizeValues - 1] = last;
}
GPU_FN void Activate(RowFn fn, float (&v)[kQuantizeValues]) {
  if (fn == RowFn::kNone) return;
#pragma unroll 1
  for (int i = 0; i < kQuantizeValues; ++i) PushBack(v, Activation(fn, v[0]));
}

template <class T>
GPU_FN void QuantizeRows(const QuantizeArgs& a) {
  ::gpu::launch_dependents();
  const int i = ::gpu::block() * ::gpu::threads() + ::gpu::thread();
  const int chunks = a.y.blocks * (32 / kQuantizeValues);
  const int row = i / chunks, at = i % chunks * kQuantizeValues;
  ::gpu::wait_predecessor();
  const bool live = row < CountOf(a.header, a.count);
  float v[kQuantizeValues] = {};
  if (live) {
    RowRefOf<T, false>(a.x, row).load(at, kQuantizeValues, v);
    Activate(a.fn, v);
    if (a.b.rows.base != nullptr) {
      float b[kQuantizeValues];
      RowRefOf<T, false>(a.b, row).load(at, kQuantizeValues, b);
#pragma unroll
      for (int j = 0; j < kQuantizeValues; ++j) v[j] *= b[j];
    }
  }
  QuantizeValues(v, a.y, row, at, live);
}

// As block_sum, in fewer instructions.
GPU_FN float SumOfBlock(float v, float* scratch) {
  v = ::gpu::wave_sum(v);
  if (::gpu::lane() == 0) scratch[::gpu::wave()] = v;
  ::gpu::sync();
  return ::gpu::wave_sum(::gpu::lane() < ::gpu::waves() ? scratch[::gpu::lane()] : 0.0f);
}

// A row of `width` values and its norm, by a block. A thread's first chunk stays in registers: rows
// of 2048 values in a block of 256; what is behind is loaded again. `begin`, behind the first
// weights, says whether there is a row; load(at, v, first) gives the values from `at` on; keep(at,
// v, live) takes the normed ones, all lanes of a wave together.
template <class Begin, class Load, class Keep>
GPU_FN void NormRow(const RowNorm& norm, int width, float* scratch, Begin begin, Load load,
                    Keep keep) {
  constexpr int kN = kQuantizeValues;
  const int first = ::gpu::thread() * kN, step = ::gpu::threads() * kN;
  float w[kN] = {}, v[kN] = {};
  if (first < width) LoadValues<true>(norm.w + first, kN, w);
  if (!begin()) return;

  // From behind, so that the first chunk is what is left.
  float squares = 0;
#pragma unroll 1
  for (int at = first + (width - 1 - first) / step * step; at >= first; at -= step) {
    if (at < width) load(at, v, true);
#pragma unroll
    for (int j = 0; j < kN; ++j) squares += v[j] * v[j];
  }
  squares = SumOfBlock(squares, scratch);
  const float scale = ::gpu::rsqrt(squares / static_cast<float>(width) + norm.eps);

  // Waves go on together.
#pragma unroll 1
  for (int at = first; at - ::gpu::lane() * kN < width; at += step) {
    if (at != first && at < width) {
      load(at, v, false);
      LoadValues<true>(norm.w + at, kN, w);
    }
#pragma unroll
    for (int j = 0; j < kN; ++j) v[j] = v[j] * scale * (w[j] + norm.offset);
    keep(at, v, at < width);
  }
}

template <class T>
GPU_FN void QuantizeNorm(const QuantizeNormArgs& a) {
  constexpr int kN = kQuantizeValues;
  const int row = ::gpu::block();
  const bool adds = a.add.rows.base != nullptr, keeps = adds && a.sum.rows.base != nullptr;
  NormRow(
      a.norm, a.y.blocks * 32, reinterpret_cast<float*>(::gpu::shared()),
      [&] {
        ::gpu::launch_dependents();
        ::gpu::wait_predecessor();
        return row < CountOf(a.header, a.count);
      },
      [&](int at, float(&v)[kN], bool first) {
        RowRefOf<T, false>(a.x, row).load(at, kN, v);
        if (!adds) return;
        float b[kN];
        RowRefOf<T, false>(a.add, row).load(at, kN, b);
#pragma unroll
        for (int j = 0; j < kN; ++j) v[j] += b[j];
        if (first && keeps) RowRefOf<T, false>(a.sum, row).store(at, kN, v);
      },
      [&](int at, const float(&v)[kN], bool live) { QuantizeValues(v, a.y, row, at, live); });
}

}  // namespace vt::gpu
