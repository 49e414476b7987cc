// x w^T for weights in f32, f16 and bf16: panels [k][nr] of the weight's own type against f32
// activations.
#pragma once

#include "vt/cpu/quant_kernels.h"

namespace vt::cpu {
namespace {

template <ir::DType T>
inline vf LoadPlain(const std::byte* p) {
  if constexpr (T == ir::DType::kF32) return LoadAs<vf>(p);
  if constexpr (T == ir::DType::kF16) return LoadHalf(p);
  if constexpr (T == ir::DType::kBF16) return LoadBf16(p);
}
template <ir::DType T>
constexpr int kPlainBytes = (T == ir::DType::kF32 ? 4 : 2) * kNr;

inline const float* FloatRow(const LinearArgs& a, int64_t row) {
  return reinterpret_cast<const float*>(a.x + (row < a.rows ? row : a.rows - 1) * a.x_stride);
}

// Four sums a row hide the latency of the multiply-add.
template <ir::DType T, int M>
void FloatGemv(const LinearArgs& a, int64_t begin, int64_t end) {
  constexpr int kUnroll = 4;
  const float* x[M];
  for (int m = 0; m < M; ++m) x[m] = FloatRow(a, m);
  for (int64_t panel = begin; panel < end; ++panel) {
    const std::byte* p = a.w + panel * a.panel_bytes;
    vf acc[M][kUnroll] = {};
    int64_t k = 0;
    for (; k + kUnroll <= a.k; k += kUnroll) {
      __builtin_prefetch(p + 1024);
      if constexpr (kPlainBytes<T> * kUnroll > 64) __builtin_prefetch(p + 1024 + 64);
      for (int u = 0; u < kUnroll; ++u, p += kPlainBytes<T>) {
        const vf w = LoadPlain<T>(p);
        for (int m = 0; m < M; ++m) acc[m][u] += w * x[m][k + u];
      }
    }
    for (; k < a.k; ++k, p += kPlainBytes<T>) {
      const vf w = LoadPlain<T>(p);
      for (int m = 0; m < M; ++m) acc[m][0] += w * x[m][k];
    }
    for (int m = 0; m < M; ++m) {
      WriteRow(a, m, panel, (acc[m][0] + acc[m][1]) + (acc[m][2] + acc[m][3]));
    }
  }
}

// 6 x 2 accumulators, two vectors of weights and a broadcast: 15 of 16 registers.
template <int MR>
inline void FloatTile(const LinearArgs& a, int64_t row, int64_t panel, int64_t panels,
                      const float* w0, const float* w1) {
  const float* x[MR];
  for (int m = 0; m < MR; ++m) x[m] = FloatRow(a, row + m);
  vf acc[MR][2] = {};
  for (int64_t k = 0; k < a.k; ++k) {
    const vf c0 = Load(w0 + k * kNr), c1 = Load(w1 + k * kNr);
#pragma GCC unroll 6
    for (int m = 0; m < MR; ++m) {
      const vf s = Splat(x[m][k]);
      acc[m][0] += c0 * s;
      acc[m][1] += c1 * s;
    }
  }
  for (int m = 0; m < MR && row + m < a.rows; ++m) {
    for (int64_t p = 0; p < panels; ++p) WriteRow(a, row + m, panel + p, acc[m][p]);
  }
}

template <ir::DType T>
void FloatGemm(const LinearArgs& a, int64_t begin, int64_t end, std::byte* scratch) {
  for (int64_t panel = begin; panel < end; panel += 2) {
    const int64_t panels = panel + 1 < end ? 2 : 1;
    const float* w[2];
    for (int64_t i = 0; i < 2; ++i) {
      const std::byte* p = a.w + (panel + (i < panels ? i : 0)) * a.panel_bytes;
      float* s = reinterpret_cast<float*>(scratch) + i * a.k * kNr;
      w[i] = s;
      for (int64_t k = 0; k < a.k; ++k) Store(s + k * kNr, LoadPlain<T>(p + k * kPlainBytes<T>));
    }
    for (int64_t r = 0; r < a.rows; r += 6) FloatTile<6>(a, r, panel, panels, w[0], w[1]);
  }
}

template <ir::DType T>
void FloatLinear(const LinearArgs& a, int64_t begin, int64_t end, std::byte* scratch) {
  switch (a.rows) {
    case 1:
      return FloatGemv<T, 1>(a, begin, end);
    case 2:
      return FloatGemv<T, 2>(a, begin, end);
    case 3:
      return FloatGemv<T, 3>(a, begin, end);
    default:
      return FloatGemm<T>(a, begin, end, scratch);
  }
}

template <ir::DType T>
void FloatReadRow(const std::byte* panel, int lane, int64_t k, float* out, std::byte*) {
  for (int64_t i = 0; i < k; ++i) out[i] = LoadPlain<T>(panel + i * kPlainBytes<T>)[lane];
}

}  // namespace
}  // namespace vt::cpu
