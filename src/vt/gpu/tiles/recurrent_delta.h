// The gated delta rule, token after token, with a piece of a head's state in the registers of a
// wave: kDeltaColumns columns, all rows. No wave needs another.
#pragma once

#include "vt/gpu/tiles/recurrent_conv.h"
#include "vt/gpu/tiles/rows.h"

namespace vt::gpu {

GPU_FN float SigmoidOf(float x) { return 1 / (1 + ::gpu::exp(-x)); }
GPU_FN float SiluOf(float x) { return x * SigmoidOf(x); }
GPU_FN float SoftplusOf(float x) { return x > 20 ? x : ::gpu::log(1 + ::gpu::exp(x)); }

// A head of the layer, and what of the state is this wave's: all rows, kColumns columns a lane.
// kWhole: k_dim is kMostDim and v_dim a multiple of the wave's columns, so that nothing has to be
// asked.
template <int kMostDim, int kColumns, bool kWhole>
struct DeltaPiece {
  static constexpr int kAcross = kDeltaAcross;  // lanes of a row
  static constexpr int kGroups = ::gpu::kWave / kAcross;
  static constexpr int kRows = kMostDim / kGroups;  // of a lane, one after the other

  int row, column, rows, columns;  // this lane's first row and column, and how many there are
  float rate, dt;
  float s[kRows][kColumns];

  GPU_FN DeltaPiece(const DeltaArgs& a, int head, int first_column) {
    row = ::gpu::lane() / kAcross * kRows;
    column = first_column + ::gpu::lane() % kAcross * kColumns;
    rows = kWhole ? kRows : ::gpu::max(0, ::gpu::min(kRows, a.k_dim - row));
    columns = kWhole ? kColumns : ::gpu::max(0, ::gpu::min(kColumns, a.v_dim - column));
    rate = a.log_a != 0 ? -::gpu::exp(a.big_a[head]) : a.big_a[head];
    dt = a.dt[head];
  }

  GPU_FN int64_t First(const DeltaArgs& a, int head) const {
    return a.state_begin + (static_cast<int64_t>(head) * a.k_dim + row) * a.v_dim + column;
  }
  GPU_FN void Load(const DeltaArgs& a, int head, const float* slot) {
    const float* p = slot + First(a, head);
#pragma unroll
    for (int j = 0; j < kRows; ++j, p += a.v_dim) {
      if (kWhole && slot != nullptr) {
        LoadValues<true>(p, kColumns, s[j]);
      } else {
        LoadValues<false>(p, slot != nullptr && j < rows ? columns : 0, s[j]);
      }
    }
  }
  GPU_FN void Store(const DeltaArgs& a, int head, float* slot) const {
    float* p = slot + First(a, head);
#pragma unroll
    for (int j = 0; j < kRows; ++j, p += a.v_dim) {
      if (kWhole || j < rows) StoreValues<kWhole>(p, columns, s[j]);
    }
  }

  GPU_FN static float Sum(float v) {  // over the lanes that have other rows
#pragma unroll
    for (int m = ::gpu::kWave / 2; m >= kAcross; m /= 2) v += ::gpu::shuffle_xor(v, m);
    return v;
  }

  // One token: q(j) and k(j) for this lane's rows and v, before their norms; a and b as they are.
  // `out`: this lane's columns, the same in all lanes of a column.
  template <class Query, class Key>
  GPU_FN void Step(const DeltaArgs& d, const Query& query, const Key& key,
                   const float (&v)[kColumns], float a, float b, float (&out)[kColumns]) {
    float qq = 0, kk = 0, qk = 0, known[kColumns] = {}, asked[kColumns] = {};
#pragma unroll
    for (int j = 0; j < kRows; ++j) {
      const float q = query(j), k = key(j);
      qq += q * q;
      kk += k * k;
      qk += q * k;
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        known[c] += k * s[j][c];
        asked[c] += q * s[j][c];
      }
    }
    qq = Sum(qq);
    kk = Sum(kk);
    qk = Sum(qk);
    const float k_scale = ::gpu::rsqrt(kk + d.eps);
    const float q_scale = ::gpu::rsqrt(qq + d.eps) * ::gpu::rsqrt(static_cast<float>(d.k_dim));
    const float keep = ::gpu::exp(rate * SoftplusOf(a + dt)), write = SigmoidOf(b);
    float delta[kColumns];
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      delta[c] = write * (v[c] - keep * k_scale * Sum(known[c]));
      out[c] = q_scale * (keep * Sum(asked[c]) + qk * k_scale * delta[c]);
    }
#pragma unroll
    for (int j = 0; j < kRows; ++j) {
      const float kj = key(j) * k_scale;
#pragma unroll
      for (int c = 0; c < kColumns; ++c) s[j][c] = keep * s[j][c] + kj * delta[c];
    }
  }
};

// `n` of N values; what is past them is zero.
template <class T, int N>
GPU_FN void LoadSome(const T* p, int n, float (&v)[N]) {
#pragma unroll
  for (int j = 0; j < N; ++j) v[j] = j < n ? ::gpu::to_float(p[j]) : 0.0f;
}

template <class T, int kMostDim>
GPU_FN void DeltaRows(const DeltaArgs& d) {
  constexpr int kColumns = kDeltaColumns / kDeltaAcross;
  using Piece = DeltaPiece<kMostDim, kColumns, false>;
  const int pieces = (d.v_dim + kDeltaColumns - 1) / kDeltaColumns;
  const int index = ::gpu::block() * ::gpu::waves() + ::gpu::wave(), request = ::gpu::block_y();
  const int head = ::gpu::min(index / pieces, d.v_heads - 1);
  const bool live = index < d.v_heads * pieces && request < d.header->requests;
  const int key = d.tiled != 0 ? head % d.k_heads : head / (d.v_heads / d.k_heads);
  Piece piece(d, head, index % pieces * kDeltaColumns);
  ::gpu::launch_dependents();
  ::gpu::wait_predecessor();
  if (!live) return;
  const int first = d.state.query_start[request];
  const int end = ::gpu::min(d.state.query_start[request + 1], d.header->tokens);
  if (end - first > d.most_tokens) return;
  piece.Load(d, head, SlotToRead(d.state, request));
  const int key_values = d.k_heads * d.k_dim;
  for (int t = first; t < end; ++t) {
    const T* x = RowOf<T>(d.qkv, t);
    float q[Piece::kRows], k[Piece::kRows], v[kColumns], out[kColumns];
    LoadSome(x + key * d.k_dim + piece.row, piece.rows, q);
    LoadSome(x + key_values + key * d.k_dim + piece.row, piece.rows, k);
    LoadSome(x + 2 * key_values + head * d.v_dim + piece.column, piece.columns, v);
    piece.Step(
        d, [&](int j) { return q[j]; }, [&](int j) { return k[j]; }, v,
        ::gpu::to_float(RowOf<T>(d.a, t)[head]), ::gpu::to_float(RowOf<T>(d.b, t)[head]), out);
    if (::gpu::lane() >= Piece::kAcross) continue;
    T* y = RowOf<T>(d.y, t * d.v_heads + head) + piece.column;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      if (c < piece.columns) y[c] = ::gpu::from_float<T>(out[c]);
    }
  }
  if (float* slot = SlotToWrite(d.state, request)) piece.Store(d, head, slot);
}

}  // namespace vt::gpu
