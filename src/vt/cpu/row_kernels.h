// Operations on rows of floats: norms, activations, softmax, rotation. Any length; outputs may be
// their inputs.
#pragma once

#include <cmath>

#include "vt/cpu/kernels.h"
#include "vt/cpu/simd.h"

namespace vt::cpu {
namespace {

inline vf LoadTail(const float* p, int64_t n, float fill = 0) {
  float t[kNr];
  for (int i = 0; i < kNr; ++i) t[i] = i < n ? p[i] : fill;
  return Load(t);
}
inline void StoreTail(float* p, int64_t n, vf v) {
  for (int i = 0; i < n; ++i) p[i] = v[i];
}

template <typename F>
inline void Map(const float* x, int64_t n, float* y, F f) {
  int64_t i = 0;
  for (; i + kNr <= n; i += kNr) Store(y + i, f(Load(x + i)));
  if (i < n) StoreTail(y + i, n - i, f(LoadTail(x + i, n - i)));
}
template <typename F>
inline void Map2(const float* a, const float* b, int64_t n, float* y, F f) {
  int64_t i = 0;
  for (; i + kNr <= n; i += kNr) Store(y + i, f(Load(a + i), Load(b + i)));
  if (i < n) StoreTail(y + i, n - i, f(LoadTail(a + i, n - i, 1), LoadTail(b + i, n - i, 1)));
}

inline float SumOfSquares(const float* x, int64_t n, float mean) {
  vf s0 = {}, s1 = {};
  const vf m = Splat(mean);
  int64_t i = 0;
  for (; i + 2 * kNr <= n; i += 2 * kNr) {
    const vf a = Load(x + i) - m, b = Load(x + i + kNr) - m;
    s0 += a * a;
    s1 += b * b;
  }
  float tail = 0;
  for (; i < n; ++i) tail += (x[i] - mean) * (x[i] - mean);
  return Sum(s0 + s1) + tail;
}

void RmsNormRow(const float* x, const float* w, float eps, float offset, int64_t n, float* y) {
  const float scale = 1.0f / std::sqrt(SumOfSquares(x, n, 0) / static_cast<float>(n) + eps);
  if (w == nullptr) return Map(x, n, y, [=](vf a) { return a * scale; });
  Map2(x, w, n, y, [=](vf a, vf b) { return a * scale * (b + offset); });
}

void LayerNormRow(const float* x, const float* w, const float* b, float eps, float offset,
                  int64_t n, float* y) {
  vf s = {};
  int64_t i = 0;
  for (; i + kNr <= n; i += kNr) s += Load(x + i);
  float sum = Sum(s);
  for (; i < n; ++i) sum += x[i];
  const float mean = sum / static_cast<float>(n);
  const float scale = 1.0f / std::sqrt(SumOfSquares(x, n, mean) / static_cast<float>(n) + eps);
  Map2(x, w, n, y, [=](vf a, vf g) { return (a - mean) * scale * (g + offset); });
  if (b != nullptr) Map2(y, b, n, y, [](vf a, vf c) { return a + c; });
}

void BinaryRow(Binary op, const float* a, const float* b, int64_t n, float* y) {
  switch (op) {
    case Binary::kAdd:
      return Map2(a, b, n, y, [](vf p, vf q) { return p + q; });
    case Binary::kSub:
      return Map2(a, b, n, y, [](vf p, vf q) { return p - q; });
    case Binary::kMul:
      return Map2(a, b, n, y, [](vf p, vf q) { return p * q; });
    case Binary::kDiv:
      return Map2(a, b, n, y, [](vf p, vf q) { return p / q; });
  }
}

void ScaleRow(const float* x, float multiply, float add, int64_t n, float* y) {
  Map(x, n, y, [=](vf a) { return a * multiply + add; });
}

void ClampRow(const float* x, float low, float high, int64_t n, float* y) {
  Map(x, n, y, [=](vf a) { return Min(Max(a, Splat(low)), Splat(high)); });
}

// tanh form: x sigmoid(2 u) = x / (1 + exp(-2 u)), u = sqrt(2 / pi) (x + 0.044715 x^3).
inline vf GeluTanh(vf x) {
  return x / (1.0f + Exp(x * (x * x * -0.0713548162726f - 1.59576912161f)));
}

template <typename G>
inline auto WithActivation(Activate fn, G g) {
  switch (fn) {
    case Activate::kSilu:
      return g([](vf x) { return x / (1.0f + Exp(-x)); });
    case Activate::kGeluTanh:
      return g([](vf x) { return GeluTanh(x); });
    case Activate::kRelu:
      return g([](vf x) { return Max(x, vf{}); });
    case Activate::kSigmoid:
      return g([](vf x) { return Sigmoid(x); });
    case Activate::kTanh:
      return g([](vf x) { return Tanh(x); });
    case Activate::kExp:
      return g([](vf x) { return Exp(x); });
    case Activate::kSquaredRelu:
      return g([](vf x) { return Max(x, vf{}) * Max(x, vf{}); });
    case Activate::kQuickGelu:
      return g([](vf x) { return x / (1.0f + Exp(x * -1.702f)); });
    case Activate::kGelu:
      return g([](vf x) {
        for (int i = 0; i < kNr; ++i) x[i] = 0.5f * x[i] * std::erfc(-x[i] * 0.70710678118f);
        return x;
      });
    case Activate::kSoftplus:
      return g([](vf x) {
        for (int i = 0; i < kNr; ++i) x[i] = x[i] > 20.0f ? x[i] : std::log1p(std::exp(x[i]));
        return x;
      });
  }
}

void ActivateRow(Activate fn, const float* x, int64_t n, float* y) {
  WithActivation(fn, [&](auto f) { Map(x, n, y, f); });
}
void ActMulRow(Activate fn, const float* g, const float* u, int64_t n, float* y) {
  WithActivation(fn, [&](auto f) { Map2(g, u, n, y, [&](vf a, vf b) { return f(a) * b; }); });
}
void SoftCapRow(const float* x, float inverse, float cap, int64_t n, float* y) {
  Map(x, n, y, [=](vf a) { return Tanh(a * inverse) * cap; });
}

void SoftmaxRow(const float* x, int64_t n, bool log, float* y) {
  const float low = -__builtin_inff();
  vf m = Splat(low);
  int64_t i = 0;
  for (; i + kNr <= n; i += kNr) m = Max(Load(x + i), m);
  if (i < n) m = Max(LoadTail(x + i, n - i, low), m);
  const float max = MaxLane(m);
  vf sums = {};
  for (i = 0; i + kNr <= n; i += kNr) {
    const vf e = Exp(Load(x + i) - max);
    if (!log) Store(y + i, e);
    sums += e;
  }
  float sum = Sum(sums);
  if (i < n) {
    const vf e = Exp(LoadTail(x + i, n - i, low) - max);
    sum += Sum(e);
    if (!log) StoreTail(y + i, n - i, e);
  }
  if (log) {
    const float shift = max + std::log(sum);
    Map(x, n, y, [=](vf a) { return a - shift; });
  } else {
    const float inverse = 1.0f / sum;
    Map(y, n, y, [=](vf a) { return a * inverse; });
  }
}

void RopeRow(const float* x, const float* cos, const float* sin, int64_t rotary, bool interleaved,
             int64_t n, float* y) {
  const int64_t half = rotary / 2;
  int64_t i = 0;
  if (interleaved) {
    for (; i < half; ++i) {
      const float a = x[2 * i], b = x[2 * i + 1];
      y[2 * i] = a * cos[i] - b * sin[i];
      y[2 * i + 1] = b * cos[i] + a * sin[i];
    }
  } else {
    for (; i + kNr <= half; i += kNr) {
      const vf a = Load(x + i), b = Load(x + half + i), c = Load(cos + i), s = Load(sin + i);
      Store(y + i, a * c - b * s);
      Store(y + half + i, b * c + a * s);
    }
    for (; i < half; ++i) {
      const float a = x[i], b = x[half + i];
      y[i] = a * cos[i] - b * sin[i];
      y[half + i] = b * cos[i] + a * sin[i];
    }
  }
  if (x != y) {
    for (int64_t j = rotary; j < n; ++j) y[j] = x[j];
  }
}

void ToBrainRow(const float* x, int64_t n, std::byte* out) {
  for (int64_t i = 0; i < n; ++i) {
    const uint16_t h = BrainBits(x[i]);
    __builtin_memcpy(out + 2 * i, &h, 2);
  }
}

// Ties go to the lower index; NaN never wins (0 when nothing does).
int32_t ArgMaxRow(const float* x, int64_t n) {
  vf best = Splat(-__builtin_inff());
  int64_t i = 0;
  for (; i + kNr <= n; i += kNr) best = Max(Load(x + i), best);
  float m = MaxLane(best);
  for (; i < n; ++i) m = x[i] > m ? x[i] : m;
  for (int64_t j = 0; j < n; ++j) {
    if (x[j] == m) return static_cast<int32_t>(j);
  }
  return 0;
}

}  // namespace
}  // namespace vt::cpu
