// RMS and layer norms with what is added before and behind them. The first two chunks of a thread
// stay in registers between the passes: rows of 8192 values of 16 bits in a block of 512. What is
// behind is read again.
#pragma once

#include "vt/gpu/tiles/rows.h"

namespace vt::gpu {

template <class T, bool kPlain>
GPU_FN void NormRows(const RowsNormArgs& a) {
  constexpr int kN = kChunk<T>;
  constexpr int kHeld = 2;
  const RowPlace place = PlaceOf(a.work);
  float* scratch = reinterpret_cast<float*>(::gpu::shared());
  const int count = CountOf(a.work.header, a.work.count);
  const int first = place.rank * kN, step = place.size * kN;

  // Weights are nobody's output: they come while the predecessor still runs. (Where rows are not
  // plain, the registers are needed otherwise.)
  float w[kHeld][kN] = {};
#pragma unroll
  for (int h = 0; h < kHeld; ++h) {
    const int at = first + h * step;
    if (kPlain && a.w != nullptr && at < a.work.width)
      LoadValues<kPlain>(a.w + at, a.work.width - at, w[h]);
  }
  ::gpu::launch_dependents();
  ::gpu::wait_predecessor();
  const bool live = place.row < count;
  if (!live && a.work.lane_bits < 0) return;  // else its wave still sums together
  const int width = live ? a.work.width : 0;
  const int row = live ? place.row : 0;

  const bool adds = a.add.rows.base != nullptr;
  const RowRef<T, kPlain> x = RowRefOf<T, kPlain>(a.x, row), add = RowRefOf<T, kPlain>(a.add, row),
                          sum = RowRefOf<T, kPlain>(a.sum, row), y = RowRefOf<T, kPlain>(a.y, row),
                          residual = RowRefOf<T, kPlain>(a.residual, row);
  const auto load = [&](int at, float(&v)[kN]) {
    x.load(at, width - at, v);
    if (adds) {
      float b[kN];
      add.load(at, width - at, b);
#pragma unroll
      for (int j = 0; j < kN; ++j) v[j] += b[j];
    }
  };
  // Sums over the row of values or of their squares about the mean; `keep` in the first pass.
  float held[kHeld][kN];
  const auto total = [&](auto part) {
    float t = 0;
#pragma unroll
    for (int h = 0; h < kHeld; ++h) {
#pragma unroll
      for (int j = 0; j < kN; ++j) {
        if (first + h * step + (kPlain ? 0 : j) < width) t += part(held[h][j]);
      }
    }
    for (int at = first + kHeld * step; at < width; at += step) {
      float v[kN];
      load(at, v);
#pragma unroll
      for (int j = 0; j < kN; ++j) {
        if (kPlain || at + j < width) t += part(v[j]);
      }
    }
    return t;
  };

#pragma unroll
  for (int h = 0; h < kHeld; ++h) {
    const int at = first + h * step;
#pragma unroll
    for (int j = 0; j < kN; ++j) held[h][j] = 0;
    if (at < width) load(at, held[h]);
  }
  if (adds && a.sum.rows.base != nullptr) {
#pragma unroll
    for (int h = 0; h < kHeld; ++h) {
      const int at = first + h * step;
      if (at < width) sum.store(at, width - at, held[h]);
    }
    for (int at = first + kHeld * step; at < width; at += step) {
      float v[kN];
      load(at, v);
      sum.store(at, width - at, v);
    }
  }

  const float size = static_cast<float>(a.work.width);
  float mean = 0;
  if (a.centre != 0)
    mean = RowSum(a.work, total([](float v) { return v; }), scratch + kRowsScratch) / size;
  const float squares =
      RowSum(a.work, total([mean](float v) { return (v - mean) * (v - mean); }), scratch);
  const float scale = ::gpu::rsqrt(squares / size + a.eps);

  const auto finish = [&](int at, float(&v)[kN], const float(&g)[kN]) {
#pragma unroll
    for (int j = 0; j < kN; ++j) v[j] = (v[j] - mean) * scale * (g[j] + a.offset);
    float b[kN];
    if (a.bias != nullptr) {
      LoadValues<kPlain>(a.bias + at, width - at, b);
#pragma unroll
      for (int j = 0; j < kN; ++j) v[j] += b[j];
    }
    if (a.residual.rows.base != nullptr) {
      residual.load(at, width - at, b);
#pragma unroll
      for (int j = 0; j < kN; ++j) v[j] += b[j];
    }
    y.store(at, width - at, v);
  };
#pragma unroll
  for (int h = 0; h < kHeld; ++h) {
    const int at = first + h * step;
    if (!kPlain && a.w != nullptr && at < width) LoadValues<kPlain>(a.w + at, width - at, w[h]);
    if (at < width) finish(at, held[h], w[h]);
  }
  for (int at = first + kHeld * step; at < width; at += step) {
    float v[kN], g[kN] = {};
    load(at, v);
    if (a.w != nullptr) LoadValues<kPlain>(a.w + at, width - at, g);
    finish(at, v, g);
  }
}

}  // namespace vt::gpu
