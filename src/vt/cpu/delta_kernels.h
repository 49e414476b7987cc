// Recurrent layers: the causal filter, and the gated delta rule.
//
// One token reads the state in one stream and writes it in another. Many take stretches of its
// columns, which stay in the first cache level, a few tokens at a time: the state is loaded and
// scaled once for all of them, and there are three operations a value and token instead of four.
// Longer chunks would have as many: products within the chunk grow as those with the state shrink.
#pragma once

#include <cmath>
#include <utility>

#include "vt/cpu/kernels.h"
#include "vt/cpu/row_kernels.h"

namespace vt::cpu {
namespace {

// --- the filter

template <int First, int... I>
inline vf EveryOther(vf a, vf b, std::integer_sequence<int, I...>) {
  return __builtin_shufflevector(a, b, (2 * I + First)...);
}
inline vf Evens(vf a, vf b) { return EveryOther<0>(a, b, std::make_integer_sequence<int, kNr>()); }
inline vf Odds(vf a, vf b) { return EveryOther<1>(a, b, std::make_integer_sequence<int, kNr>()); }

// Taps of channels [begin, begin + n) as [width][kConvChannels].
inline void TransposeTaps(const float* w, int64_t width, int64_t n, float* taps) {
  int64_t c = 0;
  if (width == 4) {
    for (; c + kNr <= n; c += kNr) {
      const float* p = w + 4 * c;
      const vf a = Load(p), b = Load(p + kNr), d = Load(p + 2 * kNr), e = Load(p + 3 * kNr);
      const vf even0 = Evens(a, b), even1 = Evens(d, e), odd0 = Odds(a, b), odd1 = Odds(d, e);
      Store(taps + c, Evens(even0, even1));
      Store(taps + kConvChannels + c, Evens(odd0, odd1));
      Store(taps + 2 * kConvChannels + c, Odds(even0, even1));
      Store(taps + 3 * kConvChannels + c, Odds(odd0, odd1));
    }
  }
  for (; c < n; ++c) {
    for (int64_t j = 0; j < width; ++j) taps[j * kConvChannels + c] = w[c * width + j];
  }
}

inline vf SiluIf(bool silu, vf x) { return silu ? x / (1.0f + Exp(-x)) : x; }

void ConvTokens(const ConvArgs& a, const ConvTile& t, float* scratch) {
  const int64_t n = t.end - t.begin, kept = a.width - 1;
  float *taps = scratch, *before = scratch + a.width * kConvChannels;
  TransposeTaps(a.w + t.begin * a.width, a.width, n, taps);
  for (int64_t j = 0; j < kept; ++j) {
    float* row = before + j * kConvChannels;
    for (int64_t c = 0; c < n; ++c)
      row[c] = t.read != nullptr ? t.read[j * a.channels + t.begin + c] : 0.0f;
  }
  // Rows that the taps see: those kept from before, then the step's.
  const auto row = [&](int64_t i) {
    return i < kept ? before + i * kConvChannels
                    : a.x + (t.first + i - kept) * a.x_stride + t.begin;
  };
  for (int64_t i = 0; i < t.count; ++i) {
    float* y = a.y + (t.first + i) * a.y_stride + t.begin;
    int64_t c = 0;
    for (; c + kNr <= n; c += kNr) {
      vf sum = {};
      for (int64_t j = 0; j < a.width; ++j)
        sum += Load(row(i + j) + c) * Load(taps + j * kConvChannels + c);
      Store(y + c, SiluIf(a.silu, sum));
    }
    if (c == n) continue;
    vf sum = {};
    for (int64_t j = 0; j < a.width; ++j)
      sum += LoadTail(row(i + j) + c, n - c) * LoadTail(taps + j * kConvChannels + c, n - c);
    StoreTail(y + c, n - c, SiluIf(a.silu, sum));
  }
  if (t.write == nullptr) return;
  for (int64_t j = 0; j < kept; ++j) {
    const float* from = row(t.count + j);
    for (int64_t c = 0; c < n; ++c) t.write[j * a.channels + t.begin + c] = from[c];
  }
}

// --- the delta rule

inline float Dot(const float* a, const float* b, int64_t n) {
  vf s = {};
  int64_t i = 0;
  for (; i + kNr <= n; i += kNr) s += Load(a + i) * Load(b + i);
  float tail = 0;
  for (; i < n; ++i) tail += a[i] * b[i];
  return Sum(s) + tail;
}

// What a token brings: the query and key, normalised, their product, and the gates.
struct DeltaToken {
  const float *q, *k;
  float qk, keep, write;
};

inline DeltaToken ReadToken(const DeltaArgs& a, int64_t token, int64_t head, float* out) {
  const int64_t d = a.k_dim, kh = a.tiled ? head % a.k_heads : head / (a.v_heads / a.k_heads);
  const float *q = a.qkv + token * a.qkv_stride + kh * d, *k = q + a.k_heads * d;
  const float scale_q = 1 / std::sqrt((SumOfSquares(q, d, 0) + a.eps) * static_cast<float>(d));
  const float scale_k = 1 / std::sqrt(SumOfSquares(k, d, 0) + a.eps);
  Map(q, d, out, [=](vf x) { return x * scale_q; });
  Map(k, d, out + d, [=](vf x) { return x * scale_k; });
  const float rate = a.log_a ? -std::exp(a.rate[head]) : a.rate[head];
  const float x = a.a[token * a.a_stride + head] + a.dt[head];
  const float softplus = x > 20 ? x : std::log1p(std::exp(x));
  return {out, out + d, Dot(out, out + d, d), std::exp(rate * softplus),
          1 / (1 + std::exp(-a.b[token * a.b_stride + head]))};
}

inline const float* Values(const DeltaArgs& a, int64_t token, int64_t head) {
  return a.qkv + token * a.qkv_stride + 2 * a.k_heads * a.k_dim + head * a.v_dim;
}

// Norm and gate of a head's values, in place.
inline void Finish(const DeltaArgs& a, int64_t token, int64_t head) {
  if (a.norm == nullptr) return;
  float* y = a.y + token * a.y_stride + head * a.v_dim;
  RmsNormRow(y, a.norm, a.norm_eps, a.norm_offset, a.v_dim, y);
  Map2(a.gate + token * a.gate_stride + head * a.v_dim, y, a.v_dim, y,
       [](vf g, vf v) { return SiluIf(true, g) * v; });
}

// One token, from one slot to another, in the order in which the state lies in memory.
// REQUIRES v_dim a multiple of kNr.
inline void DeltaOne(const DeltaArgs& a, const DeltaTile& t, float* scratch) {
  const int64_t dk = a.k_dim, dv = a.v_dim;
  float *known = scratch, *out = known + dv, *qk = out + dv;
  const DeltaToken x = ReadToken(a, t.first, t.head, qk);
  for (int64_t c = 0; c < 2 * dv; c += kNr) Store(scratch + c, vf{});
  if (t.read != nullptr) {
    int64_t i = 0;
    for (; i + 4 <= dk; i += 4) {  // four rows: sums come through the cache a quarter as often
      const float* s = t.read + i * dv;
      for (int64_t c = 0; c < dv; c += kNr) {
        // As much of the next four rows as this turn reads of these: a state does not stay in the
        // caches from one token to the next, and prefetchers stop where a page ends.
        for (int64_t line = 0; line < 4 * kNr; line += 16)
          __builtin_prefetch(s + 4 * (dv + c) + line);
        vf sum = Load(known + c), product = Load(out + c);
        for (int64_t r = 0; r < 4; ++r) {
          const vf v = Load(s + r * dv + c);
          sum += v * x.k[i + r];
          product += v * x.q[i + r];
        }
        Store(known + c, sum);
        Store(out + c, product);
      }
    }
    for (; i < dk; ++i) {
      for (int64_t c = 0; c < dv; c += kNr) {
        const vf v = Load(t.read + i * dv + c);
        Store(known + c, Load(known + c) + v * x.k[i]);
        Store(out + c, Load(out + c) + v * x.q[i]);
      }
    }
  }
  const float* v = Values(a, t.first, t.head);
  float* y = a.y + t.first * a.y_stride + t.head * dv;
  for (int64_t c = 0; c < dv; c += kNr) {
    const vf delta = (Load(v + c) - Load(known + c) * x.keep) * x.write;
    Store(y + c, Load(out + c) * x.keep + delta * x.qk);
    Store(known + c, delta);
  }
  if (t.write == nullptr) return;
  for (int64_t i = 0; i < dk; ++i) {
    for (int64_t c = 0; c < dv; c += kNr) {
      vf s = Load(known + c) * x.k[i];
      if (t.read != nullptr) s += Load(t.read + i * dv + c) * x.keep;
      Store(t.write + i * dv + c, s);
    }
  }
}

// --- several tokens at once

constexpr int kDeltaVectors =
    4;  // of columns: a stretch of the state stays in the first cache level
constexpr int kDeltaColumns = kDeltaVectors * kNr;

// kDeltaBlock tokens, of which those past the end keep all and write nothing. With G_t the product
// of what tokens 0 .. t keep, S the state before and S' behind,
//   delta_t = w_t (v_t - G_t k_t S - sum over j < t of G_t / G_j (k_t.k_j) delta_j)
//   y_t = G_t q_t S + sum over j <= t of G_t / G_j (q_t.k_j) delta_j
//   S' = G_last S + sum over j of G_last / G_j k_j delta_j
struct DeltaBlock {
  const float* pairs = nullptr;  // [k_dim][2 kDeltaBlock]: the tokens' keys, then their queries
  float keep[kDeltaBlock] = {}, write[kDeltaBlock] = {}, left[kDeltaBlock] = {};
  float of_keys[kDeltaBlock][kDeltaBlock] = {}, of_queries[kDeltaBlock][kDeltaBlock] = {};
};

// `rows`: a token's query and key at a time.
inline DeltaBlock ReadBlock(const DeltaArgs& a, int64_t token, int64_t count, int64_t head,
                            float* rows, float* pairs) {
  const int64_t d = a.k_dim;
  DeltaBlock b;
  b.pairs = pairs;
  float all = 1;
  for (int64_t t = 0; t < kDeltaBlock; ++t) {
    float *q = rows + t * 2 * d, *k = q + d;
    if (t < count) {
      const DeltaToken x = ReadToken(a, token + t, head, q);
      for (int64_t j = 0; j < t; ++j) {
        b.left[j] *= x.keep;
        b.of_keys[t][j] = b.left[j] * Dot(k, k - (t - j) * 2 * d, d);
        b.of_queries[t][j] = b.left[j] * Dot(q, k - (t - j) * 2 * d, d);
      }
      b.left[t] = 1;
      b.of_queries[t][t] = x.qk;
      b.write[t] = x.write;
      all *= x.keep;
    } else {
      for (int64_t i = 0; i < 2 * d; ++i) q[i] = 0;
    }
    b.keep[t] = all;
    for (int64_t i = 0; i < d; ++i) {
      pairs[i * 2 * kDeltaBlock + t] = k[i];
      pairs[i * 2 * kDeltaBlock + kDeltaBlock + t] = q[i];
    }
  }
  return b;
}

// A block and a stretch of columns [k_dim][kDeltaColumns] of the state; v and y hold as many.
inline void DeltaColumns(const DeltaBlock& b, int64_t dk, float* s, const float* v,
                         int64_t v_stride, float* y, int64_t y_stride) {
  for (int64_t c = 0; c < kDeltaColumns; c += kNr) {
    vf known[kDeltaBlock] = {}, out[kDeltaBlock] = {}, delta[kDeltaBlock];
    for (int64_t i = 0; i < dk; ++i) {
      const vf p = Load(s + i * kDeltaColumns + c);
      const float* pairs = b.pairs + i * 2 * kDeltaBlock;
#pragma GCC unroll 4
      for (int t = 0; t < kDeltaBlock; ++t) {
        known[t] += p * pairs[t];
        out[t] += p * pairs[kDeltaBlock + t];
      }
    }
#pragma GCC unroll 4
    for (int t = 0; t < kDeltaBlock; ++t) {
      vf rest = Load(v + t * v_stride + c) - known[t] * b.keep[t], result = out[t] * b.keep[t];
#pragma GCC unroll 4
      for (int j = 0; j < t; ++j) {
        rest -= delta[j] * b.of_keys[t][j];
        result += delta[j] * b.of_queries[t][j];
      }
      delta[t] = rest * b.write[t];
      Store(y + t * y_stride + c, result + delta[t] * b.of_queries[t][t]);
    }
#pragma GCC unroll 4
    for (int t = 0; t < kDeltaBlock; ++t) delta[t] *= b.left[t];
    const vf kept = Splat(b.keep[kDeltaBlock - 1]);
    for (int64_t i = 0; i < dk; ++i) {
      vf p = Load(s + i * kDeltaColumns + c) * kept;
#pragma GCC unroll 4
      for (int t = 0; t < kDeltaBlock; ++t) p += delta[t] * b.pairs[i * 2 * kDeltaBlock + t];
      Store(s + i * kDeltaColumns + c, p);
    }
  }
}

// kDeltaColumns values; zeros for those past `n`, and for all when there are none.
inline void CopyRow(const float* from, int64_t n, float* to) {
  if (from != nullptr && n >= kDeltaColumns) {
    for (int c = 0; c < kDeltaColumns; c += kNr) Store(to + c, Load(from + c));
    return;
  }
  for (int64_t c = 0; c < kDeltaColumns; ++c) to[c] = from != nullptr && c < n ? from[c] : 0.0f;
}

inline int64_t Least(int64_t a, int64_t b) { return a < b ? a : b; }

void DeltaTokens(const DeltaArgs& a, const DeltaTile& t, float* scratch) {
  const int64_t dk = a.k_dim, dv = a.v_dim;
  if (t.count == 1 && dv % kNr == 0) {
    DeltaOne(a, t, scratch);
    return Finish(a, t.first, t.head);
  }
  const int64_t stretches = (dv + kDeltaColumns - 1) / kDeltaColumns;
  float* state = scratch;  // [stretch][k_dim][kDeltaColumns]; zeros past the end
  float* rows = state + stretches * dk * kDeltaColumns;
  float* pairs = rows + kDeltaBlock * 2 * dk;
  const auto at = [&](int64_t stretch, int64_t i) {
    return state + (stretch * dk + i) * kDeltaColumns;
  };
  for (int64_t b = 0; b < stretches; ++b) {
    for (int64_t i = 0; i < dk; ++i)
      CopyRow(t.read == nullptr ? nullptr : t.read + i * dv + b * kDeltaColumns,
              dv - b * kDeltaColumns, at(b, i));
  }
  for (int64_t first = 0; first < t.count; first += kDeltaTokens) {
    const int64_t count = Least(t.count - first, kDeltaTokens);
    DeltaBlock blocks[kDeltaTokens / kDeltaBlock];
    for (int64_t i = 0; i < count; i += kDeltaBlock)
      blocks[i / kDeltaBlock] =
          ReadBlock(a, t.first + first + i, count - i, t.head, rows, pairs + i * 2 * dk);
    for (int64_t b = 0; b < stretches; ++b) {
      const int64_t begin = b * kDeltaColumns, n = Least(dv - begin, kDeltaColumns);
      for (int64_t i = 0; i < count; i += kDeltaBlock) {
        const int64_t token = t.first + first + i, tokens = Least(count - i, kDeltaBlock);
        const float* v = Values(a, token, t.head) + begin;
        float* y = a.y + token * a.y_stride + t.head * dv + begin;
        const DeltaBlock& block = blocks[i / kDeltaBlock];
        if (n == kDeltaColumns && tokens == kDeltaBlock) {
          DeltaColumns(block, dk, at(b, 0), v, a.qkv_stride, y, a.y_stride);
          continue;
        }
        float values[kDeltaBlock * kDeltaColumns] = {}, results[kDeltaBlock * kDeltaColumns];
        for (int64_t r = 0; r < tokens; ++r) {
          for (int64_t c = 0; c < n; ++c) values[r * kDeltaColumns + c] = v[r * a.qkv_stride + c];
        }
        DeltaColumns(block, dk, at(b, 0), values, kDeltaColumns, results, kDeltaColumns);
        for (int64_t r = 0; r < tokens; ++r) {
          for (int64_t c = 0; c < n; ++c) y[r * a.y_stride + c] = results[r * kDeltaColumns + c];
        }
      }
    }
    for (int64_t i = 0; i < count; ++i) Finish(a, t.first + first + i, t.head);
  }
  if (t.write == nullptr) return;
  for (int64_t b = 0; b < stretches; ++b) {
    const int64_t n = Least(dv - b * kDeltaColumns, kDeltaColumns);
    for (int64_t i = 0; i < dk; ++i) {
      float* to = t.write + i * dv + b * kDeltaColumns;
      int64_t c = 0;
      for (; c + kNr <= n; c += kNr) Store(to + c, Load(at(b, i) + c));
      for (; c < n; ++c) to[c] = at(b, i)[c];
    }
  }
}

}  // namespace
}  // namespace vt::cpu
