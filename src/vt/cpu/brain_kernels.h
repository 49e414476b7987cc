// x w^T for activations of bf16: dot products of pairs of values (AVX512_BF16) and of tiles of them
// (AMX).
//
// Sums are f32. Weights count as bf16: those of bf16 are, and quantised ones are rounded when they
// are unpacked, which the tiles do. Tiles of int8 multiply twice as fast, but blocks of activations
// have a scale every 32 values, so that sums would leave the tile after half its depth: what that
// costs in loads, conversions and products is more than it saves, and bf16 is the more exact.
// Panels of bf16 weights are [k / 2][nr][2], what both instructions want; of an odd k the last pair
// has a zero.
#pragma once

#include "vt/cpu/float8_kernels.h"
#include "vt/cpu/float_kernels.h"

#if defined(__AVX512BF16__)

namespace vt::cpu {
namespace {

constexpr int64_t kPairBytes = 4 * kNr;  // a pair of every row of a panel

inline const std::byte* BrainRow(const LinearArgs& a, int64_t row) {
  return a.x + (row < a.rows ? row : a.rows - 1) * a.x_stride;
}
inline vi SplatPair(const std::byte* p) { return SplatWord(reinterpret_cast<const int8_t*>(p)); }
// The last value of an odd row, and 0: what stands behind it may be no number.
inline vi SplatLast(const std::byte* p) {
  uint16_t h;
  __builtin_memcpy(&h, p, 2);
  return SplatInt(h);
}
inline void WidenRow(const std::byte* x, int64_t k, float* out) {
  int64_t i = 0;
  for (; i + kNr <= k; i += kNr) Store(out + i, LoadBf16(x + 2 * i));
  for (; i < k; ++i) {
    uint16_t h;
    __builtin_memcpy(&h, x + 2 * i, 2);
    const uint32_t u = static_cast<uint32_t>(h) << 16;
    __builtin_memcpy(out + i, &u, 4);
  }
}
inline vf DotPairs(vf acc, vi w, vi x) {
  return (vf)_mm512_dpbf16_ps((__m512)acc, (__m512bh)w, (__m512bh)x);
}

// Few rows: four sums a row hide the latency of the dot product.
template <int M>
void PairGemv(const LinearArgs& a, int64_t begin, int64_t end) {
  constexpr int kUnroll = 4;
  const std::byte* x[M];
  for (int m = 0; m < M; ++m) x[m] = BrainRow(a, m);
  const int64_t pairs = a.k / 2;
  for (int64_t panel = begin; panel < end; ++panel) {
    const std::byte* p = a.w + panel * a.panel_bytes;
    vf acc[M][kUnroll] = {};
    int64_t i = 0;
    for (; i + kUnroll <= pairs; i += kUnroll) {
      for (int u = 0; u < kUnroll; ++u, p += kPairBytes) {
        __builtin_prefetch(p + 1024);
        const vi w = LoadAs<vi>(p);
        for (int m = 0; m < M; ++m)
          acc[m][u] = DotPairs(acc[m][u], w, SplatPair(x[m] + 4 * (i + u)));
      }
    }
    for (; i < pairs; ++i, p += kPairBytes) {
      for (int m = 0; m < M; ++m)
        acc[m][0] = DotPairs(acc[m][0], LoadAs<vi>(p), SplatPair(x[m] + 4 * i));
    }
    if (a.k % 2 != 0) {
      for (int m = 0; m < M; ++m)
        acc[m][0] = DotPairs(acc[m][0], LoadAs<vi>(p), SplatLast(x[m] + 4 * i));
    }
    for (int m = 0; m < M; ++m)
      WriteRow(a, m, panel, (acc[m][0] + acc[m][1]) + (acc[m][2] + acc[m][3]));
  }
}

// Two panels as floats [k][nr], for products in f32.
inline int64_t WidenPairs(const LinearArgs& a, int64_t panel, int64_t end, std::byte* scratch,
                          const float* w[2]) {
  const int64_t panels = panel + 1 < end ? 2 : 1;
  for (int64_t i = 0; i < 2; ++i) {
    const std::byte* p = a.w + (panel + (i < panels ? i : 0)) * a.panel_bytes;
    float* s = reinterpret_cast<float*>(scratch) + i * a.k * kNr;
    w[i] = s;
    for (int64_t k = 0; k < a.k; ++k) {
      const vu pair = LoadAs<vu>(p + k / 2 * kPairBytes);
      Store(s + k * kNr, (vf)(k % 2 == 0 ? pair << 16 : pair & 0xffff0000u));
    }
  }
  return panels;
}

// Activations of f32, as a linear has them whose other weights want those.
void PairFloatLinear(const LinearArgs& a, int64_t begin, int64_t end, std::byte* scratch) {
  for (int64_t panel = begin; panel < end; panel += 2) {
    const float* w[2];
    const int64_t panels = WidenPairs(a, panel, end, scratch, w);
    for (int64_t r = 0; r < a.rows; r += 6) FloatTile<6>(a, r, panel, panels, w[0], w[1]);
  }
}

// Many rows are widened, six at a time: multiply-adds of f32 beat dot products of bf16 by 1.5 where
// both were measured (a Xeon with AMX), since there are two of them a cycle.
void PairLinear(const LinearArgs& a, int64_t begin, int64_t end, std::byte* scratch) {
  switch (a.rows) {
    case 1:
      return PairGemv<1>(a, begin, end);
    case 2:
      return PairGemv<2>(a, begin, end);
    case 3:
      return PairGemv<3>(a, begin, end);
    default:
      break;
  }
  float* wide = reinterpret_cast<float*>(scratch) + 2 * a.k * kNr;
  for (int64_t panel = begin; panel < end; panel += 2) {
    const float* w[2];
    const int64_t panels = WidenPairs(a, panel, end, scratch, w);
    for (int64_t r = 0; r < a.rows; r += 6) {
      LinearArgs tile = a;
      tile.rows = a.rows - r < 6 ? a.rows - r : 6;
      for (int64_t m = 0; m < tile.rows; ++m) WidenRow(BrainRow(a, r + m), a.k, wide + m * a.k);
      tile.x = reinterpret_cast<const std::byte*>(wide);
      tile.x_stride = 4 * a.k;
      if (a.out_rows != nullptr) {
        tile.out_rows = a.out_rows + r;
      } else {
        tile.out = a.out + r * a.out_stride;
      }
      if (a.residual != nullptr) tile.residual = a.residual + r * a.residual_stride;
      FloatTile<6>(tile, 0, panel, panels, w[0], w[1]);
    }
  }
}

void PairReadRow(const std::byte* panel, int lane, int64_t k, float* out, std::byte*) {
  for (int64_t i = 0; i < k; ++i) {
    uint16_t h;
    __builtin_memcpy(&h, panel + i / 2 * kPairBytes + 4 * lane + i % 2 * 2, 2);
    const uint32_t u = static_cast<uint32_t>(h) << 16;
    __builtin_memcpy(out + i, &u, 4);
  }
}

#if defined(__AMX_BF16__)

// --- tiles: 16 rows of x by 16 of the weight, 32 values of k an instruction

constexpr int64_t kTileRowsOfX = 16, kTileValues = 32;
// Panels that are unpacked together: 64 rows of the weight, so that x comes through the caches
// a quarter as often as its values are used; in the second cache level up to k = 8192.
constexpr int64_t kTilePanels = 4;

// What LDTILECFG reads.
struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};

// Registers 0 to 3: sums of two tiles of x by two panels; 4 and 5: x; 6 and 7: panels. The second
// tile of x may be absent (0 rows).
inline void ShapeTiles(int64_t rows0, int64_t rows1) {
  TileConfig c;
  const int64_t rows[8] = {rows0, rows0, rows1, rows1, rows0, rows1, 16, 16};
  for (int t = 0; t < 8; ++t) {
    if (rows[t] == 0) continue;
    c.row_bytes[t] = 64;
    c.rows[t] = static_cast<uint8_t>(rows[t]);
  }
  asm volatile("" : : "r"(&c) : "memory");  // the intrinsic names the first eight bytes only
  _tile_loadconfig(&c);
}

// Rows of x whose sums by two panels are kept (32 KiB) before they are written.
constexpr int64_t kTileBlock = 256;

// Sums [32][32] of up to 32 rows of x by two panels. All of k in one go: keeping a stretch of k in
// the first cache level was 14% slower, for the sums that go out and in.
inline void TileSums(const std::byte* x, int64_t stride, bool second, const std::byte* w0,
                     const std::byte* w1, int64_t values, float* sums) {
  const std::byte* x1 = x + kTileRowsOfX * stride;
  constexpr int64_t kPitch = 32 * 4, kLower = 16 * 32;
  _tile_zero(0);
  _tile_zero(1);
  if (second) {
    _tile_zero(2);
    _tile_zero(3);
    for (int64_t k = 0; k < values; k += kTileValues) {
      _tile_loadd(4, x + 2 * k, stride);
      _tile_loadd(6, w0 + k / 2 * kPairBytes, kPairBytes);
      _tile_loadd(7, w1 + k / 2 * kPairBytes, kPairBytes);
      _tile_dpbf16ps(0, 4, 6);
      _tile_loadd(5, x1 + 2 * k, stride);
      _tile_dpbf16ps(1, 4, 7);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(2, sums + kLower, kPitch);
    _tile_stored(3, sums + kLower + 16, kPitch);
  } else {
    for (int64_t k = 0; k < values; k += kTileValues) {
      _tile_loadd(4, x + 2 * k, stride);
      _tile_loadd(6, w0 + k / 2 * kPairBytes, kPairBytes);
      _tile_loadd(7, w1 + k / 2 * kPairBytes, kPairBytes);
      _tile_dpbf16ps(0, 4, 6);
      _tile_dpbf16ps(1, 4, 7);
    }
  }
  _tile_stored(0, sums, kPitch);
  _tile_stored(1, sums + 16, kPitch);
}

// All rows of x by `count` panels of pairs. `sums` holds kTileBlock x 32.
inline void TilePanels(const LinearArgs& a, int64_t panel, int64_t count, const std::byte* const* w,
                       float* sums) {
  asm volatile("" : : : "memory");  // loads of tiles are not known to read memory
  int64_t shaped0 = -1, shaped1 = -1;
  for (int64_t block = 0; block < a.rows; block += kTileBlock) {
    const int64_t rows = a.rows - block < kTileBlock ? a.rows - block : kTileBlock;
    const std::byte* x = a.x + block * a.x_stride;
    for (int64_t p = 0; p < count; p += 2) {
      const std::byte *w0 = w[p], *w1 = w[p + 1 < count ? p + 1 : p];
      for (int64_t r = 0; r < rows; r += 2 * kTileRowsOfX) {
        const int64_t left = rows - r;
        const int64_t rows0 = left < kTileRowsOfX ? left : kTileRowsOfX;
        const int64_t rows1 = left - rows0 < kTileRowsOfX ? left - rows0 : kTileRowsOfX;
        if (rows0 != shaped0 || rows1 != shaped1) {
          ShapeTiles(rows0, rows1);
          shaped0 = rows0;
          shaped1 = rows1;
        }
        TileSums(x + r * a.x_stride, a.x_stride, rows1 > 0, w0, w1, a.k, sums + r * 32);
      }
      for (int64_t m = 0; m < rows; ++m) {
        WriteRow(a, block + m, panel + p, Load(sums + m * 32));
        if (p + 1 < count) WriteRow(a, block + m, panel + p + 1, Load(sums + m * 32 + 16));
      }
    }
  }
  _tile_release();
}

// Two vectors side by side to pairs: value i of the first, then of the second.
struct PairOrder {
  uint16_t from[2 * kNr] = {};
  constexpr PairOrder() {
    for (int i = 0; i < 2 * kNr; ++i) from[i] = static_cast<uint16_t>(i / 2 + i % 2 * kNr);
  }
};
constexpr PairOrder kPairOrder;

inline void StorePair(std::byte* p, vf even, vf odd) {
  const __m512i both = (__m512i)_mm512_cvtne2ps_pbh((__m512)odd, (__m512)even);
  StoreAs(p, _mm512_permutexvar_epi16(LoadAs<__m512i>(kPairOrder.from), both));
}

// An unpacked panel (quant_kernels.h) to pairs of bf16; G values share a scale.
template <int G>
inline void ToPairs(const Unpacked& u, int64_t k, std::byte* out) {
  for (int64_t g = 0; g < k / G; ++g) {
    const vf scale = Load(u.scale + g * kNr), min = Load(u.min + g * kNr);
    const auto value = [&](vu codes) { return ToFloat((vi)(codes & 255u)) * scale - min; };
    for (int64_t j = g * G / 4; j < (g + 1) * G / 4; ++j) {
      const vu w = LoadAs<vu>(u.codes + j * kVectorBytes);
      StorePair(out + 2 * j * kPairBytes, value(w), value(w >> 8));
      StorePair(out + (2 * j + 1) * kPairBytes, value(w >> 16), value(w >> 24));
    }
  }
}

inline void F8ToPairs(const std::byte* p, int64_t k, std::byte* out) {
  for (int64_t i = 0; i < k; i += 32, p += kF8Block) {
    const vf d = LoadF8Scale(p);
    for (int j = 4; j < 36; j += 2, out += kPairBytes)
      StorePair(out, d * LoadF8(p + j * kNr), d * LoadF8(p + (j + 1) * kNr));
  }
}

template <ir::DType T>
void TileLinear(const LinearArgs& a, int64_t begin, int64_t end, std::byte* scratch) {
  constexpr bool kPlain = T == ir::DType::kBF16;
  if (kPlain && (a.rows < 4 || a.k % kTileValues != 0)) return PairLinear(a, begin, end, scratch);
  float* sums = reinterpret_cast<float*>(scratch);
  scratch += kTileBlock * 32 * 4;
  const std::byte* w[kTilePanels];
  for (int64_t p = begin; p < end; p += kTilePanels) {
    const int64_t count = p + kTilePanels < end ? kTilePanels : end - p;
    for (int64_t i = 0; i < count; ++i) {
      const std::byte* panel = a.w + (p + i) * a.panel_bytes;
      w[i] = panel;
      if constexpr (T == ir::DType::kF8_32) {
        std::byte* pairs = scratch + i * a.k / 2 * kPairBytes;
        F8ToPairs(panel, a.k, pairs);
        w[i] = pairs;
      } else if constexpr (!kPlain) {
        constexpr FormatSpec S = SpecOf(T);
        Unpacked u;
        std::byte* next = scratch + kTilePanels * a.k / 2 * kPairBytes;
        u.codes = reinterpret_cast<uint8_t*>(next);
        u.scale = reinterpret_cast<float*>(next + a.k * kNr);
        u.min = u.scale + a.k / GroupOf(S) * kNr;
        Unpack<S>(reinterpret_cast<const uint8_t*>(panel), a.k, u);
        std::byte* pairs = scratch + i * a.k / 2 * kPairBytes;
        ToPairs<GroupOf(S)>(u, a.k, pairs);
        w[i] = pairs;
      }
    }
    TilePanels(a, p, count, w, sums);
  }
}

#endif  // AMX

}  // namespace
}  // namespace vt::cpu

#endif  // AVX512_BF16
