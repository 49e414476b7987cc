// Rotation of heads by position, after an RMS norm if there is a weight. A head's values are taken
// as pairs: the rotated ones, (i, i + half) or (2 i, 2 i + 1), then what passes through, (2 i, 2 i
// + 1). A thread has a chunk of pairs, which is two chunks of values.
#pragma once

#include "vt/gpu/tiles/rows.h"

namespace vt::gpu {

template <int N>
struct Pairs {
  float a[N], b[N];
};

// Where the pairs [p, p + N) stand.
template <int N, bool kPlain>
struct PairPlace {
  int p, half, width;
  bool interleaved;

  GPU_FN bool beside(int i) const { return interleaved || i >= half; }
  GPU_FN int low(int i) const { return beside(i) ? 2 * i : i; }
  GPU_FN int high(int i) const { return beside(i) ? 2 * i + 1 : i + half; }
  // Whether they are two whole chunks.
  GPU_FN bool whole() const {
    return kPlain || p + N <= half || (p >= half && 2 * (p + N) <= width);
  }
  GPU_FN int first() const { return low(p); }
  GPU_FN int second() const { return beside(p) ? 2 * p + N : p + half; }
};

template <int N, bool kPlain, class Row>
GPU_FN void LoadPairs(const Row& row, const PairPlace<N, kPlain>& at, Pairs<N>& v) {
  if (!at.whole()) {
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const int low = at.low(at.p + j), high = at.high(at.p + j);
      v.a[j] = low < at.width ? row.value(low) : 0.0f;
      v.b[j] = high < at.width ? row.value(high) : 0.0f;
    }
    return;
  }
  row.load(at.first(), N, v.a);
  row.load(at.second(), N, v.b);
  if (!at.beside(at.p)) return;
  float t[2 * N];
#pragma unroll
  for (int j = 0; j < N; ++j) {
    t[j] = v.a[j];
    t[N + j] = v.b[j];
  }
#pragma unroll
  for (int j = 0; j < N; ++j) {
    v.a[j] = t[2 * j];
    v.b[j] = t[2 * j + 1];
  }
}

template <int N, bool kPlain, class Row>
GPU_FN void StorePairs(const Row& row, const PairPlace<N, kPlain>& at, const Pairs<N>& v) {
  if (!at.whole()) {
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const int low = at.low(at.p + j), high = at.high(at.p + j);
      if (low < at.width) row.set(low, v.a[j]);
      if (high < at.width) row.set(high, v.b[j]);
    }
    return;
  }
  if (!at.beside(at.p)) {
    row.store(at.first(), N, v.a);
    row.store(at.second(), N, v.b);
    return;
  }
  float t[2 * N], low[N], high[N];
#pragma unroll
  for (int j = 0; j < N; ++j) {
    t[2 * j] = v.a[j];
    t[2 * j + 1] = v.b[j];
  }
#pragma unroll
  for (int j = 0; j < N; ++j) {
    low[j] = t[j];
    high[j] = t[N + j];
  }
  row.store(at.first(), N, low);
  row.store(at.second(), N, high);
}

// `turns`: (cos, sin) of each rotated pair.
template <int N, bool kPlain>
GPU_FN void Rotate(const float* turns, const PairPlace<N, kPlain>& at, Pairs<N>& v) {
  if (at.p >= at.half) return;
  float t[2 * N];
  LoadValues<kPlain>(turns + 2 * at.p, 2 * (at.half - at.p), t);
#pragma unroll
  for (int j = 0; j < N; ++j) {
    if (!kPlain && at.p + j >= at.half) continue;
    const float a = v.a[j], b = v.b[j];
    v.a[j] = a * t[2 * j] - b * t[2 * j + 1];
    v.b[j] = b * t[2 * j] + a * t[2 * j + 1];
  }
}

// kPlain: half of the rotated and half of the other values are whole chunks as well.
template <class T, bool kPlain>
GPU_FN void RopeRows(const RowsRopeArgs& a) {
  constexpr int kN = kChunk<T>;
  const RowPlace place = PlaceOf(a.work);
  const int count = CountOf(a.work.header, a.work.count);
  ::gpu::launch_dependents();
  ::gpu::wait_predecessor();
  const bool live = place.row < count;
  const int row = live ? place.row : 0;
  const int pairs = live ? (a.work.width + 1) / 2 : 0;
  const RowRef<T, kPlain> x = RowRefOf<T, kPlain>(a.x, row), y = RowRefOf<T, kPlain>(a.y, row);
  const int step = place.size * kN;
  const auto at = [&](int p) {
    return PairPlace<kN, kPlain>{p, a.half, a.work.width, a.interleaved != 0};
  };
  int position = live ? a.positions[row / a.heads] : 0;
  position = ::gpu::max(0, ::gpu::min(position, a.table_positions - 1));
  const float* turns = a.table + static_cast<int64_t>(position) * a.half * 2;

  // A thread's first pairs stay in registers; heads of more than 32 chunks of pairs are read again.
  const int first = place.rank * kN;
  Pairs<kN> held = {};
  if (first < pairs) LoadPairs(x, at(first), held);
  float scale = 1;
  if (a.w != nullptr) {
    float squares = 0;
    const auto count_in = [&](const Pairs<kN>& v) {
#pragma unroll
      for (int j = 0; j < kN; ++j) squares += v.a[j] * v.a[j] + v.b[j] * v.b[j];
    };
    count_in(held);
    for (int p = first + step; p < pairs; p += step) {
      Pairs<kN> v;
      LoadPairs(x, at(p), v);
      count_in(v);
    }
    squares = LaneSum(a.work, squares);
    scale = ::gpu::rsqrt(squares / static_cast<float>(a.work.width) + a.eps);
  }
  const auto finish = [&](int p, Pairs<kN>& v) {
    if (a.w != nullptr) {
      Pairs<kN> w;
      LoadPairs(RowRef<float, kPlain>{reinterpret_cast<char*>(const_cast<float*>(a.w)), true},
                at(p), w);
#pragma unroll
      for (int j = 0; j < kN; ++j) {
        v.a[j] *= scale * (w.a[j] + a.offset);
        v.b[j] *= scale * (w.b[j] + a.offset);
      }
    }
    Rotate(turns, at(p), v);
    StorePairs(y, at(p), v);
  };
  if (first < pairs) finish(first, held);
  for (int p = first + step; p < pairs; p += step) {
    Pairs<kN> v;
    LoadPairs(x, at(p), v);
    finish(p, v);
  }
}

}  // namespace vt::gpu
