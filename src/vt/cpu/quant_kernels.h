// x w^T for quantised weights: panels of formats.h against activations of int8 blocks.
//
// Few rows of x: every panel is unpacked in registers, once (bound by memory). More rows: two
// panels at a time are unpacked into scratch that stays in the first cache levels, and multiplied
// in register tiles.
#pragma once

#include "vt/cpu/formats.h"
#include "vt/cpu/kernels.h"
#include "vt/cpu/simd.h"
#include "vt/ir/quant_blocks.h"

namespace vt::cpu {
namespace {

// A row of Q8_A32: blocks of (f32 d, i16 sums of 16 values each, 32 x i8), as quant.h says.
constexpr int kActivationBlock = 40;
struct ActivationRow {
  const std::byte* p;

  const int8_t* q(int64_t block) const {
    return reinterpret_cast<const int8_t*>(p + block * kActivationBlock + 8);
  }
  float d(int64_t block) const {
    float x;
    __builtin_memcpy(&x, p + block * kActivationBlock, 4);
    return x;
  }
  int sum(int64_t block, int half) const {
    int16_t x;
    __builtin_memcpy(&x, p + block * kActivationBlock + 4 + 2 * half, 2);
    return x;
  }
};

// What is taken off the integer sums for codes that carry an offset.
constexpr int ZeroOf(const FormatSpec& s) { return s.is_signed ? kSignedOffset : s.zero; }

// How many products of codes fit a 16-bit lane, in k-groups: 2 * code * 127 * depth < 32768.
constexpr int DepthOf(const FormatSpec& s) {
  if (s.is_signed) return 0;
  if (s.table == CodeTable::kFP4) return 4;  // up to 24
  switch (s.low_bits + s.high_bits) {
    case 6:
      return 2;
    case 5:
      return 4;
    default:
      return 8;
  }
}

template <FormatSpec S>
inline void LoadCodes(const uint8_t* p, vi w[8]) {
  if constexpr (S.low_bits == 8) {
    for (int j = 0; j < 8; ++j) w[j] = LoadAs<vi>(p + j * kVectorBytes);
  } else if constexpr (S.low_bits == 4) {
    for (int j = 0; j < 4; ++j) {
      const vu v = LoadAs<vu>(p + j * kVectorBytes);
      w[j] = (vi)(v & 0x0f0f0f0fu);
      w[j + 4] = (vi)((v >> 4) & 0x0f0f0f0fu);
    }
  } else {
    for (int v = 0; v < 2; ++v) {
      const vu x = LoadAs<vu>(p + v * kVectorBytes);
      for (int j = 0; j < 4; ++j) w[4 * v + j] = (vi)((x >> (2 * j)) & 0x03030303u);
    }
  }
  const uint8_t* high = p + LowWords(S) * kVectorBytes;
  if constexpr (S.high_bits == 1) {
    const vu h = LoadAs<vu>(high);
    constexpr uint32_t mask = 0x01010101u << S.low_bits;
    for (int j = 0; j < 8; ++j) {
      w[j] |= (vi)((j <= S.low_bits ? h << (S.low_bits - j) : h >> (j - S.low_bits)) & mask);
    }
  } else if constexpr (S.high_bits == 2) {
    for (int v = 0; v < 2; ++v) {
      const vu h = LoadAs<vu>(high + v * kVectorBytes);
      for (int j = 0; j < 4; ++j)
        w[4 * v + j] |= (vi)((2 * j <= 4 ? h << (4 - 2 * j) : h >> (2 * j - 4)) & 0x30303030u);
    }
  }
  if constexpr (S.table != CodeTable::kNone) {
    constexpr auto kTable = [] {
      std::array<int8_t, 16> t = S.table == CodeTable::kIQ4 ? ir::kIQ4Values : ir::kFP4Values;
      if (S.table == CodeTable::kFP4) {
        for (int8_t& v : t) v = static_cast<int8_t>(v + S.zero);
      }
      return t;
    }();
    for (int j = 0; j < 8; ++j) w[j] = Lookup16(kTable.data(), w[j]);
  }
  if constexpr (S.is_signed && kSignedOffset != 0) {
    for (int j = 0; j < 8; ++j) w[j] ^= (vi)(vu{} + 0x80808080u);
  }
}

// Sum over N k-groups of codes x activations.
template <FormatSpec S, int N>
inline vi DotGroups(const vi* w, const int8_t* x) {
  if constexpr (S.is_signed) {
    vi acc = {};
    for (int j = 0; j < N; ++j) acc = DotSigned(acc, w[j], SplatWord(x + 4 * j));
    return acc;
  } else {
#if defined(__AVX2__) && !defined(__AVX512VNNI__)
    constexpr int depth = DepthOf(S) < N ? DepthOf(S) : N;
    vi acc = {};
    for (int j = 0; j < N; j += depth) {
      vi pairs = PairDot(w[j], SplatWord(x + 4 * j));
      for (int i = 1; i < depth; ++i)
        pairs = Add16(pairs, PairDot(w[j + i], SplatWord(x + 4 * (j + i))));
      acc += SumPairs(pairs);
    }
    return acc;
#else
    vi a = {}, b = {};
    for (int j = 0; j < N; j += 2) {
      a = DotU8(a, w[j], SplatWord(x + 4 * j));
      b = DotU8(b, w[j + 1], SplatWord(x + 4 * (j + 1)));
    }
    return a + b;
#endif
  }
}

// A vector of results to the rows of the weight that exist.
inline void WriteRow(const LinearArgs& a, int64_t row, int64_t panel, vf v) {
  const int64_t n = panel * kNr;
  float* out = a.out + (a.out_rows != nullptr ? a.out_rows[row] : row) * a.out_stride + n;
  if (n + kNr <= a.n) {
    if (a.bias) v += Load(a.bias + n);
    if (a.residual) v += Load(a.residual + row * a.residual_stride + n);
    Store(out, v);
    return;
  }
  for (int64_t i = 0; i < a.n - n; ++i) {
    float y = v[i];
    if (a.bias) y += a.bias[n + i];
    if (a.residual) y += a.residual[row * a.residual_stride + n + i];
    out[i] = y;
  }
}

// d * sum of every group of G values, as floats.
template <int G>
inline void ScaledSums(const ActivationRow& x, int64_t k, float* out) {
  for (int64_t b = 0; b < k / 32; ++b) {
    if constexpr (G == 32) {
      out[b] = x.d(b) * static_cast<float>(x.sum(b, 0) + x.sum(b, 1));
    } else {
      out[2 * b] = x.d(b) * static_cast<float>(x.sum(b, 0));
      out[2 * b + 1] = x.d(b) * static_cast<float>(x.sum(b, 1));
    }
  }
}

constexpr bool HasStoredMin(const FormatSpec& s) {
  return s.scale == ScaleKind::kHalfMin || s.scale == ScaleKind::kSuper32Min ||
         s.scale == ScaleKind::kSuper16Min;
}

// The first scale of a header.
template <FormatSpec S>
inline vf LoadScale(const uint8_t* header) {
  if constexpr (S.scale == ScaleKind::kPower) return (vf)(WidenU8(header) << 23) * 0.5f;
  return LoadHalf(header);
}

// M rows of x, one panel.
template <FormatSpec S, int M>
inline void GemvPanel(const LinearArgs& a, int64_t panel, const ActivationRow* x,
                      const float* const* sums) {
  constexpr int kHeader = HeaderBytesPerRow(S) * kNr;
  constexpr int kCodes = CodeWords(S) * kVectorBytes;
  constexpr int kZero = ZeroOf(S);
  constexpr int kPrefetch = 1024;  // bytes ahead: about 100 ns at 10 GB/s a core
  const uint8_t* p = reinterpret_cast<const uint8_t*>(a.w) + panel * a.panel_bytes;
  vf acc[M] = {};
  for (int64_t sb = 0; sb < a.k / (32 * S.super); ++sb) {
    const uint8_t* header = p;
    p += kHeader;
    [[maybe_unused]] vf scaled[M] = {};
    [[maybe_unused]] vf minima[M] = {};
    for (int i = 0; i < S.super; ++i, p += kCodes) {
      const int64_t b = sb * S.super + i;
      for (int c = 0; c < kCodes; c += 64) __builtin_prefetch(p + kPrefetch + c);
      vi w[8];
      LoadCodes<S>(p, w);
      if constexpr (GroupOf(S) == 32) {
        vf d = {};
        [[maybe_unused]] vf min = {};
        [[maybe_unused]] vi sc = {};
        if constexpr (S.super == 1) d = LoadScale<S>(header);
        if constexpr (S.scale == ScaleKind::kHalfMin) min = LoadHalf(header + 2 * kNr);
        if constexpr (S.scale == ScaleKind::kSuper32Min) {
          sc = WidenU8(header + (4 + i) * kNr);
          min = ToFloat(WidenU8(header + (12 + i) * kNr));
        }
        if constexpr (S.scale == ScaleKind::kSuper32) sc = WidenI8(header + (2 + i) * kNr);
        for (int m = 0; m < M; ++m) {
          vi dot = DotGroups<S, 8>(w, x[m].q(b));
          if constexpr (kZero != 0) dot -= SplatInt(kZero * (x[m].sum(b, 0) + x[m].sum(b, 1)));
          if constexpr (S.super == 1) {
            acc[m] += ToFloat(dot) * (d * x[m].d(b));
            if constexpr (HasStoredMin(S)) acc[m] += min * sums[m][b];
          } else {
            scaled[m] += ToFloat(dot * sc) * x[m].d(b);
            if constexpr (HasStoredMin(S)) minima[m] += min * sums[m][b];
          }
        }
      } else {
        constexpr int kScales = S.scale == ScaleKind::kSuper16Min ? 4 : 2;
        vi sc[2];
        [[maybe_unused]] vf min[2];
        for (int h = 0; h < 2; ++h) {
          const uint8_t* s = header + (kScales + 2 * i + h) * kNr;
          if constexpr (S.scale == ScaleKind::kSuper16Min) {
            const vi both = WidenU8(s);
            sc[h] = both & 15;
            min[h] = ToFloat((vi)((vu)both >> 4));
          } else {
            sc[h] = WidenI8(s);
          }
        }
        for (int m = 0; m < M; ++m) {
          vi dot[2];
          for (int h = 0; h < 2; ++h) {
            dot[h] = DotGroups<S, 4>(w + 4 * h, x[m].q(b) + 16 * h);
            if constexpr (kZero != 0) dot[h] -= SplatInt(kZero * x[m].sum(b, h));
            if constexpr (HasStoredMin(S)) minima[m] += min[h] * sums[m][2 * b + h];
          }
          scaled[m] += ToFloat(dot[0] * sc[0] + dot[1] * sc[1]) * x[m].d(b);
        }
      }
    }
    if constexpr (S.super > 1) {
      const vf d = LoadHalf(header);
      for (int m = 0; m < M; ++m) acc[m] += scaled[m] * d;
      if constexpr (HasStoredMin(S)) {
        const vf dmin = LoadHalf(header + 2 * kNr);
        for (int m = 0; m < M; ++m) acc[m] -= minima[m] * dmin;
      }
    }
  }
  for (int m = 0; m < M; ++m) WriteRow(a, m, panel, acc[m]);
}

template <FormatSpec S, int M>
void Gemv(const LinearArgs& a, int64_t begin, int64_t end, std::byte* scratch) {
  ActivationRow x[M];
  const float* sums[M];
  for (int m = 0; m < M; ++m) {
    x[m] = {a.x + m * a.x_stride};
    float* s = reinterpret_cast<float*>(scratch) + m * (a.k / GroupOf(S));
    if constexpr (HasStoredMin(S)) ScaledSums<GroupOf(S)>(x[m], a.k, s);
    sums[m] = s;
  }
  for (int64_t p = begin; p < end; ++p) GemvPanel<S, M>(a, p, x, sums);
}

// --- many rows

// A panel in scratch: codes [k / 4][nr][4], scale and minimum [k / G][nr]: w = scale * code - min.
struct Unpacked {
  uint8_t* codes;
  float* scale;
  float* min;
};

template <FormatSpec S>
inline void Unpack(const uint8_t* p, int64_t k, const Unpacked& u) {
  constexpr int kHeader = HeaderBytesPerRow(S) * kNr;
  constexpr int kCodes = CodeWords(S) * kVectorBytes;
  constexpr int kZero = ZeroOf(S);
  for (int64_t sb = 0; sb < k / (32 * S.super); ++sb) {
    const uint8_t* header = p;
    p += kHeader;
    const vf d = LoadScale<S>(header);
    [[maybe_unused]] vf dmin = {};
    if constexpr (HasStoredMin(S)) dmin = LoadHalf(header + 2 * kNr);
    for (int i = 0; i < S.super; ++i, p += kCodes) {
      const int64_t b = sb * S.super + i;
      vi w[8];
      LoadCodes<S>(p, w);
      for (int j = 0; j < 8; ++j) StoreAs(u.codes + (8 * b + j) * kVectorBytes, w[j]);
      if constexpr (GroupOf(S) == 32) {
        vf scale = d, min = -dmin;
        if constexpr (S.scale == ScaleKind::kSuper32Min) {
          scale = d * ToFloat(WidenU8(header + (4 + i) * kNr));
          min = dmin * ToFloat(WidenU8(header + (12 + i) * kNr));
        }
        if constexpr (S.scale == ScaleKind::kSuper32)
          scale = d * ToFloat(WidenI8(header + (2 + i) * kNr));
        if constexpr (!HasStoredMin(S)) min = scale * static_cast<float>(kZero);
        Store(u.scale + b * kNr, scale);
        Store(u.min + b * kNr, min);
      } else {
        for (int h = 0; h < 2; ++h) {
          vf scale, min;
          if constexpr (S.scale == ScaleKind::kSuper16Min) {
            const vi both = WidenU8(header + (4 + 2 * i + h) * kNr);
            scale = d * ToFloat(both & 15);
            min = dmin * ToFloat((vi)((vu)both >> 4));
          } else {
            scale = d * ToFloat(WidenI8(header + (2 + 2 * i + h) * kNr));
            min = scale * static_cast<float>(kZero);
          }
          Store(u.scale + (2 * b + h) * kNr, scale);
          Store(u.min + (2 * b + h) * kNr, min);
        }
      }
    }
  }
}

// Kinds of tile: what differs among formats once they are unpacked.
struct TileKind {
  int depth = 8;  // k-groups in 16 bits; 0: signed codes
  int group = 32;
  bool has_min = true;
};
template <FormatSpec S>
constexpr TileKind TileKindOf() {
  return {DepthOf(S), GroupOf(S), HasStoredMin(S) || ZeroOf(S) != 0};
}
// Rows of x a tile. 4 x 2 accumulators of 16 bits fill half of the 16 registers; where sums must be
// widened on the way, the accumulators are two sets.
template <TileKind T>
constexpr int kTileRows = T.depth * 4 >= T.group || kNr == 16 ? 4 : 2;

template <TileKind T, int MR>
inline void Tile(const LinearArgs& a, int64_t row, int64_t panel, int64_t panels, const Unpacked* u,
                 float* sums) {
  constexpr int kGroups = T.group / 4;  // k-groups that share a scale
  const int64_t count = a.k / T.group;
  ActivationRow x[MR];
  for (int m = 0; m < MR; ++m) {
    const int64_t r =
        row + m < a.rows ? row + m : a.rows - 1;  // past the end: again the last, not written
    x[m] = {a.x + r * a.x_stride};
    if constexpr (T.has_min) ScaledSums<T.group>(x[m], a.k, sums + m * count);
  }
  vf acc[MR][2] = {};
  if constexpr (T.has_min) {
    for (int64_t g = 0; g < count; ++g) {
      const vf m0 = Load(u[0].min + g * kNr), m1 = Load(u[1].min + g * kNr);
      for (int m = 0; m < MR; ++m) {
        const vf s = Splat(sums[m * count + g]);
        acc[m][0] -= m0 * s;
        acc[m][1] -= m1 * s;
      }
    }
  }
  for (int64_t g = 0; g < count; ++g) {
    const uint8_t* w0 = u[0].codes + g * kGroups * kVectorBytes;
    const uint8_t* w1 = u[1].codes + g * kGroups * kVectorBytes;
    vi dot[MR][2];
    if constexpr (T.depth == 0 || kHasVnni) {
      for (int m = 0; m < MR; ++m) dot[m][0] = dot[m][1] = vi{};
#pragma GCC unroll 8
      for (int j = 0; j < kGroups; ++j) {
        const vi c0 = LoadAs<vi>(w0 + j * kVectorBytes), c1 = LoadAs<vi>(w1 + j * kVectorBytes);
#pragma GCC unroll 4
        for (int m = 0; m < MR; ++m) {
          const vi s = SplatWord(x[m].q(g * T.group / 32) + g * T.group % 32 + 4 * j);
          if constexpr (T.depth == 0) {
            dot[m][0] = DotSigned(dot[m][0], c0, s);
            dot[m][1] = DotSigned(dot[m][1], c1, s);
          } else {
            dot[m][0] = DotU8(dot[m][0], c0, s);
            dot[m][1] = DotU8(dot[m][1], c1, s);
          }
        }
      }
    } else {
#if defined(__AVX2__)
      constexpr int kDepth = T.depth < kGroups ? T.depth : kGroups;
#pragma GCC unroll 4
      for (int h = 0; h < kGroups; h += kDepth) {
        vi pairs[MR][2];
#pragma GCC unroll 8
        for (int j = h; j < h + kDepth; ++j) {
          vi c0 = LoadAs<vi>(w0 + j * kVectorBytes), c1 = LoadAs<vi>(w1 + j * kVectorBytes);
          Pin(c0);
          Pin(c1);
#pragma GCC unroll 4
          for (int m = 0; m < MR; ++m) {
            const vi s = SplatWord(x[m].q(g * T.group / 32) + g * T.group % 32 + 4 * j);
            pairs[m][0] = j == h ? PairDot(c0, s) : Add16(pairs[m][0], PairDot(c0, s));
            pairs[m][1] = j == h ? PairDot(c1, s) : Add16(pairs[m][1], PairDot(c1, s));
            Pin(pairs[m][0]);
            Pin(pairs[m][1]);
          }
        }
#pragma GCC unroll 4
        for (int m = 0; m < MR; ++m) {
          dot[m][0] = h == 0 ? SumPairs(pairs[m][0]) : dot[m][0] + SumPairs(pairs[m][0]);
          dot[m][1] = h == 0 ? SumPairs(pairs[m][1]) : dot[m][1] + SumPairs(pairs[m][1]);
        }
      }
#else
      for (int m = 0; m < MR; ++m) {
        dot[m][0] = dot[m][1] = vi{};
        for (int j = 0; j < kGroups; ++j) {
          const vi s = SplatWord(x[m].q(g * T.group / 32) + g * T.group % 32 + 4 * j);
          dot[m][0] = DotU8(dot[m][0], LoadAs<vi>(w0 + j * kVectorBytes), s);
          dot[m][1] = DotU8(dot[m][1], LoadAs<vi>(w1 + j * kVectorBytes), s);
        }
      }
#endif
    }
    const vf s0 = Load(u[0].scale + g * kNr), s1 = Load(u[1].scale + g * kNr);
#pragma GCC unroll 4
    for (int m = 0; m < MR; ++m) {
      const vf d = Splat(x[m].d(g * T.group / 32));
      acc[m][0] += ToFloat(dot[m][0]) * (s0 * d);
      acc[m][1] += ToFloat(dot[m][1]) * (s1 * d);
    }
  }
  for (int m = 0; m < MR && row + m < a.rows; ++m) {
    for (int64_t p = 0; p < panels; ++p) WriteRow(a, row + m, panel + p, acc[m][p]);
  }
}

template <TileKind T>
void Tiles(const LinearArgs& a, int64_t panel, int64_t panels, const Unpacked* u, float* sums) {
  constexpr int kRows = kTileRows<T>;
  for (int64_t r = 0; r < a.rows; r += kRows) Tile<T, kRows>(a, r, panel, panels, u, sums);
}

template <FormatSpec S>
void Gemm(const LinearArgs& a, int64_t begin, int64_t end, std::byte* scratch) {
  constexpr TileKind kKind = TileKindOf<S>();
  Unpacked u[2];
  for (Unpacked& x : u) {
    x.codes = reinterpret_cast<uint8_t*>(scratch);
    scratch += a.k * kNr;
    x.scale = reinterpret_cast<float*>(scratch);
    scratch += a.k / GroupOf(S) * kVectorBytes;
    x.min = reinterpret_cast<float*>(scratch);
    scratch += a.k / GroupOf(S) * kVectorBytes;
  }
  for (int64_t p = begin; p < end; p += 2) {
    const uint8_t* w = reinterpret_cast<const uint8_t*>(a.w) + p * a.panel_bytes;
    Unpack<S>(w, a.k, u[0]);
    const int64_t panels = p + 1 < end ? 2 : 1;
    Unpacked pair[2] = {u[0], panels == 2 ? u[1] : u[0]};
    if (panels == 2) Unpack<S>(w + a.panel_bytes, a.k, u[1]);
    Tiles<kKind>(a, p, panels, pair, reinterpret_cast<float*>(scratch));
  }
}

template <ir::DType T>
void QuantLinear(const LinearArgs& a, int64_t begin, int64_t end, std::byte* scratch) {
  constexpr FormatSpec S = SpecOf(T);
  switch (a.rows) {
    case 1:
      return Gemv<S, 1>(a, begin, end, scratch);
    case 2:
      return Gemv<S, 2>(a, begin, end, scratch);
    case 3:
      return Gemv<S, 3>(a, begin, end, scratch);
    default:
      return Gemm<S>(a, begin, end, scratch);
  }
}

template <ir::DType T>
void QuantReadRow(const std::byte* panel, int lane, int64_t k, float* out, std::byte* scratch) {
  constexpr FormatSpec S = SpecOf(T);
  Unpacked u;
  u.codes = reinterpret_cast<uint8_t*>(scratch);
  u.scale = reinterpret_cast<float*>(scratch + k * kNr);
  u.min = u.scale + k / GroupOf(S) * kNr;
  Unpack<S>(reinterpret_cast<const uint8_t*>(panel), k, u);
  for (int64_t i = 0; i < k; ++i) {
    const int64_t g = i / GroupOf(S) * kNr + lane;
    const uint8_t code = u.codes[i / 4 * kVectorBytes + lane * 4 + i % 4];
    const int value = S.is_signed && kSignedOffset == 0 ? static_cast<int8_t>(code) : code;
    out[i] = u.scale[g] * static_cast<float>(value) - u.min[g];
  }
}

inline void QuantizeRow(const float* x, int64_t n, std::byte* out) {
  constexpr int kVectors = 32 / kNr;
  for (int64_t b = 0; b < n / 32; ++b) {
    vf v[kVectors], m = {};
    for (int i = 0; i < kVectors; ++i) {
      v[i] = Load(x + 32 * b + i * kNr);
      m = Max(m, Max(v[i], -v[i]));
    }
    const float scale = MaxLane(m) / 127.0f;
    const float inverse = scale > 1e-37f ? 1.0f / scale : 0.0f;  // 1 / a subnormal is infinite
    std::byte* block = out + b * kActivationBlock;
    __builtin_memcpy(block, &scale, 4);
    const vf magic = Splat(12582912.0f);  // rounds to nearest even, as long as |x| < 2^22
    vi half[2] = {};
    for (int i = 0; i < kVectors; ++i) {
      const vi r = (vi)(Unfused(v[i] * inverse) + magic) - (vi)magic;
      half[i * kNr / 16] += r;
      StoreAs(block + 8 + i * kNr, __builtin_convertvector(r, vi8q));
    }
    for (int h = 0; h < 2; ++h) {
      int s = 0;
      for (int i = 0; i < kNr; ++i) s += half[h][i];
      const auto sum = static_cast<int16_t>(s);
      __builtin_memcpy(block + 4 + 2 * h, &sum, 2);
    }
  }
}

}  // namespace
}  // namespace vt::cpu
