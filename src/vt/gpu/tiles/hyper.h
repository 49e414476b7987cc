// Residuals of several streams (ir::HyperAttrs): what a block reads of them, and they with its
// result.
#pragma once

#include "vt/gpu/args_entries.h"
#include "vt/gpu/tiles/common.h"

namespace vt::gpu {

GPU_FN float SigmoidOf(float x) { return 1 / (1 + ::gpu::exp(-x)); }

// Of one wave: a lane a row or a column in turn.
GPU_FN void Sinkhorn(float* m, int n, int rounds, float eps) {
  const int lane = ::gpu::lane();
  if (lane < n) {
    float* row = m + lane * n;
    float high = row[0], sum = 0;
    for (int j = 1; j < n; ++j) high = ::gpu::max(high, row[j]);
    for (int j = 0; j < n; ++j) sum += row[j] = ::gpu::exp(row[j] - high);
    for (int j = 0; j < n; ++j) row[j] = row[j] / sum + eps;
  }
  // Columns, then rows and columns.
  for (int half = 0; half < 2 * rounds - 1; ++half) {
    ::gpu::sync_wave();
    const int line = half % 2 == 0 ? 1 : n, step = half % 2 == 0 ? n : 1;
    if (lane < n) {
      float sum = eps;
      for (int j = 0; j < n; ++j) sum += m[lane * line + j * step];
      for (int j = 0; j < n; ++j) m[lane * line + j * step] /= sum;
    }
  }
  ::gpu::sync_wave();
}

template <class T>
GPU_FN void HyperCollapse(const HyperCollapseArgs& a) {
  const int row = ::gpu::block();
  if (row >= CountOf(a.header, a.count)) return;
  const int n = a.streams, mixes = a.rounds > 0 ? (2 + n) * n : n, all = n * a.dim;
  auto* m = reinterpret_cast<float*>(::gpu::shared());
  const T* x = RowOf<T>(a.x, row * n);
  float squares = 0;
  for (int i = ::gpu::thread(); i < all; i += ::gpu::threads()) {
    const float v = ::gpu::to_float(x[i]);
    squares += v * v;
  }
  squares = ::gpu::block_sum(squares, m + mixes);
  const float norm = ::gpu::rsqrt(squares / static_cast<float>(all) + a.norm_eps);
  const auto* mix = RowOf<const float>(a.mix, row);
  for (int i = ::gpu::thread(); i < mixes; i += ::gpu::threads()) {
    const float v = mix[i] * norm * a.scale[::gpu::min(i / n, 2)] + a.base[i];
    m[i] = i < n ? SigmoidOf(v) + a.eps : i < 2 * n ? 2 * SigmoidOf(v) : v;
  }
  ::gpu::sync();
  T* y = RowOf<T>(a.y, row);
  for (int d = ::gpu::thread(); d < a.dim; d += ::gpu::threads()) {
    float sum = 0;
    for (int h = 0; h < n; ++h) sum += m[h] * ::gpu::to_float(x[h * a.dim + d]);
    y[d] = ::gpu::from_float<T>(sum);
  }
  if (a.rounds == 0 || ::gpu::wave() != 0) return;
  Sinkhorn(m + 2 * n, n, a.rounds, a.eps);
  float* gates = a.gates + static_cast<int64_t>(row) * (mixes - n);
  for (int i = ::gpu::lane(); i < mixes - n; i += ::gpu::kWave) gates[i] = m[n + i];
}

template <class T>
GPU_FN void HyperExpand(const HyperExpandArgs& a) {
  const int row = ::gpu::block();
  if (row >= CountOf(a.header, a.count)) return;
  const int n = a.streams;
  const float* gates = a.gates + static_cast<int64_t>(row) * (n + n * n);
  const T *x = RowOf<T>(a.x, row * n), *y = RowOf<T>(a.y, row);
  T* out = RowOf<T>(a.out, row * n);
  for (int d = ::gpu::thread(); d < a.dim; d += ::gpu::threads()) {
    const float given = ::gpu::to_float(y[d]);
    for (int k = 0; k < n; ++k) {
      float sum = gates[k] * given;
      for (int j = 0; j < n; ++j) sum += gates[n + j * n + k] * ::gpu::to_float(x[j * a.dim + d]);
      out[k * a.dim + d] = ::gpu::from_float<T>(sum);
    }
  }
}

}  // namespace vt::gpu
