// Elementwise operations and copies: a chunk a thread. Limited by memory, so that what is computed
// is chosen at run time.
#pragma once

#include "vt/gpu/tiles/rows.h"

namespace vt::gpu {

template <int N, class F>
GPU_FN void Each(float (&v)[N], F f) {
#pragma unroll
  for (int j = 0; j < N; ++j) v[j] = f(v[j]);
}

template <int N>
GPU_FN void ApplyFn(RowFn fn, float p, float q, float (&v)[N]) {
  switch (fn) {
    case RowFn::kNone:
      break;
    case RowFn::kSilu:
      Each(v, [](float x) { return x / (1 + ::gpu::exp(-x)); });
      break;
    case RowFn::kGeluTanh:
      // 0.5 x (1 + tanh u) = x / (1 + exp(-2 u)), u = sqrt(2 / pi) (x + 0.044715 x^3)
      Each(v, [](float x) {
        return x / (1 + ::gpu::exp(x * (x * x * -0.0713548162726f - 1.59576912161f)));
      });
      break;
    case RowFn::kGelu:
      Each(v, [](float x) { return 0.5f * x * (1 + ::gpu::erf(x * 0.70710678118f)); });
      break;
    case RowFn::kRelu:
      Each(v, [](float x) { return x > 0 ? x : 0.0f; });
      break;
    case RowFn::kSigmoid:
      Each(v, [](float x) { return 1 / (1 + ::gpu::exp(-x)); });
      break;
    case RowFn::kTanh:
      Each(v, [](float x) { return ::gpu::tanh(x); });
      break;
    case RowFn::kExp:
      Each(v, [](float x) { return ::gpu::exp(x); });
      break;
    case RowFn::kSoftplus:
      // log(1 + e); beside 1 a small e loses its digits, so there it is e - e^2 / 2
      Each(v, [](float x) {
        if (x > 20) return x;
        const float e = ::gpu::exp(x);
        return e < 1e-3f ? e - 0.5f * e * e : ::gpu::log(1 + e);
      });
      break;
    case RowFn::kSquaredRelu:
      Each(v, [](float x) { return x > 0 ? x * x : 0.0f; });
      break;
    case RowFn::kQuickGelu:
      Each(v, [](float x) { return x / (1 + ::gpu::exp(-1.702f * x)); });
      break;
    case RowFn::kClamp:
      Each(v, [=](float x) { return ::gpu::min(::gpu::max(x, p), q); });
      break;
    case RowFn::kScale:
      Each(v, [=](float x) { return x * p + q; });
      break;
    case RowFn::kSoftCap:
      Each(v, [=](float x) { return ::gpu::tanh(x * p) * q; });
      break;
  }
}

template <int N>
GPU_FN void ApplyBinary(RowBinary op, float (&v)[N], const float (&b)[N]) {
#pragma unroll
  for (int j = 0; j < N; ++j) {
    switch (op) {
      case RowBinary::kNone:
        break;
      case RowBinary::kAdd:
        v[j] = v[j] + b[j];
        break;
      case RowBinary::kSub:
        v[j] = v[j] - b[j];
        break;
      case RowBinary::kMul:
        v[j] = v[j] * b[j];
        break;
      case RowBinary::kDiv:
        v[j] = v[j] / b[j];
        break;
      case RowBinary::kMulRow:
        v[j] = v[j] * b[0];
        break;
      case RowBinary::kElse:
        break;
    }
  }
}

template <class T, bool kPlain>
GPU_FN void MapRows(const RowsMapArgs& a) {
  constexpr int kN = kChunk<T>;
  const RowPlace place = PlaceOf(a.work);
  const int count = CountOf(a.work.header, a.work.count);
  const int at = place.rank * kN, n = a.work.width - at;
  ::gpu::launch_dependents();
  ::gpu::wait_predecessor();
  if (place.row >= count || n <= 0) return;

  int from = place.row;
  if (a.index != nullptr) from = a.index[place.row];
  const bool exists = a.index == nullptr || (from >= 0 && from < a.index_rows);
  float v[kN] = {}, b[kN] = {};
  if (exists) RowRefOf<T, kPlain>(a.x, from).load(at, n, v);
  if (a.binary == RowBinary::kMulRow) {
    b[0] = RowRefOf<T, false>(a.b, place.row).value(0);
  } else if (a.binary != RowBinary::kNone) {
    RowRefOf<T, kPlain>(a.b, place.row).load(at, n, b);
  }
  ApplyFn(a.fn, a.p, a.q, v);
  if (a.binary == RowBinary::kElse && !exists) {
#pragma unroll
    for (int j = 0; j < kN; ++j) v[j] = b[j];
  } else if (a.binary != RowBinary::kNone) {
    ApplyBinary(a.binary, v, b);
  }
  RowRefOf<T, kPlain>(a.y, place.row).store(at, n, v);
}

}  // namespace vt::gpu
