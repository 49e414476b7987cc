// From f32 to stored blocks. Not bit-equal to other writers, but as good: scales come from
// quant_fit.h, where a format has room for better ones than its extreme value gives.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "vt/ir/quant.h"
#include "vt/ir/quant_blocks.h"
#include "vt/ir/quant_fit.h"

namespace vt::ir {
namespace {

int RoundTo(float x, int lo, int hi) {
  return static_cast<int>(CodeOf(x, static_cast<float>(lo), static_cast<float>(hi)));
}

// Writes a half and returns the value that a reader will see.
float PutHalf(uint8_t* p, float f) {
  const uint16_t h = FloatToHalf(f);
  p[0] = static_cast<uint8_t>(h);
  p[1] = static_cast<uint8_t>(h >> 8);
  return HalfToFloat(h);
}

// Q4_0 and Q5_0: codes -half..half-1 times one scale.
template <int kBits>
void Symmetric(const float* x, uint8_t* b) {
  constexpr int kHalf = 1 << (kBits - 1);
  const float inverse = Inverse(PutHalf(b, Extreme(x, 32) / -kHalf));
  uint8_t* qs = b + (kBits == 5 ? 6 : 2);
  for (int j = 0; j < 32; ++j) {
    const int q = RoundTo(x[j] * inverse, -kHalf, kHalf - 1) + kHalf;
    qs[j % 16] |= static_cast<uint8_t>((q & 15) << (j / 16 * 4));
    if (kBits == 5) b[2 + j / 8] |= static_cast<uint8_t>((q >> 4) << (j % 8));
  }
}

// Q4_1 and Q5_1: codes 0..top times a scale plus a minimum.
template <int kBits>
void WithMinimum(const float* x, uint8_t* b) {
  constexpr int kTop = (1 << kBits) - 1;
  const auto [lo, hi] = std::minmax_element(x, x + 32);
  const float inverse = Inverse(PutHalf(b, (*hi - *lo) / kTop));
  const float min = PutHalf(b + 2, *lo);
  uint8_t* qs = b + (kBits == 5 ? 8 : 4);
  for (int j = 0; j < 32; ++j) {
    const int q = RoundTo((x[j] - min) * inverse, 0, kTop);
    qs[j % 16] |= static_cast<uint8_t>((q & 15) << (j / 16 * 4));
    if (kBits == 5) b[4 + j / 8] |= static_cast<uint8_t>((q >> 4) << (j % 8));
  }
}

void Q8_0(const float* x, uint8_t* b) {
  const float inverse = Inverse(PutHalf(b, std::fabs(Extreme(x, 32)) / 127));
  for (int j = 0; j < 32; ++j) b[2 + j] = static_cast<uint8_t>(RoundTo(x[j] * inverse, -127, 127));
}

// Fits of the `n` parts of a superblock, then their scales and minimums as integers up to `top` of
// one scale each.
struct Superblock {
  float d, dmin;
  ScaleMin parts[16];
};
Superblock FitSuperblock(const float* x, int part, const AffineSearch& search, int scale_top,
                         uint8_t* half_d, uint8_t* half_min) {
  const int n = 256 / part;
  Affine fits[16];
  float max_scale = 0, max_min = 0;
  for (int i = 0; i < n; ++i) {
    // Large values matter more; two bits cannot serve the small ones too.
    const float* values = x + i * part;
    float weights[32], squares = 0;
    for (int j = 0; j < part; ++j) squares += values[j] * values[j];
    const float base = search.absolute ? 0 : std::sqrt(squares / static_cast<float>(part));
    for (int j = 0; j < part; ++j) weights[j] = base + std::fabs(values[j]);
    fits[i] = FitAffine(values, weights, part, search);
    max_scale = std::max(max_scale, fits[i].scale);
    max_min = std::max(max_min, fits[i].min);
  }
  Superblock s{};
  s.d = PutHalf(half_d, max_scale / static_cast<float>(scale_top));
  s.dmin = PutHalf(half_min, max_min / static_cast<float>(scale_top));
  for (int i = 0; i < n; ++i) {
    s.parts[i] = {RoundTo(fits[i].scale * Inverse(s.d), 0, scale_top),
                  RoundTo(fits[i].min * Inverse(s.dmin), 0, scale_top)};
  }
  return s;
}

int AffineCode(const Superblock& s, int part, float x, int top) {
  const float scale = s.d * static_cast<float>(s.parts[part].scale);
  return RoundTo((x + s.dmin * static_cast<float>(s.parts[part].min)) * Inverse(scale), 0, top);
}

void Q2_K(const float* x, uint8_t* b) {
  const Superblock s = FitSuperblock(x, 16, {3, -0.5f, 16, true}, 15, b + 80, b + 82);
  for (int i = 0; i < 16; ++i) b[i] = static_cast<uint8_t>(s.parts[i].scale | s.parts[i].min << 4);
  for (int i = 0; i < 256; ++i) {
    const int q = AffineCode(s, i / 16, x[i], 3);
    b[16 + i / 128 * 32 + i % 32] |= static_cast<uint8_t>(q << (i % 128 / 32 * 2));
  }
}

void Q4_K(const float* x, uint8_t* b) {
  const Superblock s = FitSuperblock(x, 32, {15, -1, 21}, 63, b, b + 2);
  for (int i = 0; i < 8; ++i) SetKScaleMin(b + 4, i, s.parts[i]);
  for (int i = 0; i < 256; ++i) {
    const int q = AffineCode(s, i / 32, x[i], 15);
    b[16 + i / 64 * 32 + i % 32] |= static_cast<uint8_t>(q << (i % 64 / 32 * 4));
  }
}

void Q5_K(const float* x, uint8_t* b) {
  const Superblock s = FitSuperblock(x, 32, {31, -0.5f, 16}, 63, b, b + 2);
  for (int i = 0; i < 8; ++i) SetKScaleMin(b + 4, i, s.parts[i]);
  for (int i = 0; i < 256; ++i) {
    const int q = AffineCode(s, i / 32, x[i], 31);
    b[48 + i / 64 * 32 + i % 32] |= static_cast<uint8_t>((q & 15) << (i % 64 / 32 * 4));
    b[16 + i % 32] |= static_cast<uint8_t>((q >> 4) << (i / 32));
  }
}

// Signed scales of the parts as integers lo..hi of one superblock scale, which is written and
// returned.
float SignedScales(const float* scales, int n, int lo, int hi, uint8_t* half_d, int* out) {
  const float d = PutHalf(half_d, Extreme(scales, n) / static_cast<float>(lo));
  for (int i = 0; i < n; ++i) out[i] = RoundTo(scales[i] * Inverse(d), lo, hi);
  return d;
}

void Q3_K(const float* x, uint8_t* b) {
  float fits[16];
  int scales[16];
  for (int i = 0; i < 16; ++i) fits[i] = FitCodes(x + 16 * i, 16, -4, 3);
  const float d = SignedScales(fits, 16, -32, 31, b + 108, scales);
  for (int i = 0; i < 16; ++i) SetQ3KScale(b + 96, i, scales[i]);
  for (int i = 0; i < 256; ++i) {
    const int q = RoundTo(x[i] * Inverse(d * static_cast<float>(scales[i / 16])), -4, 3) + 4;
    b[32 + i / 128 * 32 + i % 32] |= static_cast<uint8_t>((q & 3) << (i % 128 / 32 * 2));
    b[i % 32] |= static_cast<uint8_t>((q >> 2) << (i / 32));
  }
}

void Q6_K(const float* x, uint8_t* b) {
  float fits[16];
  int scales[16];
  for (int i = 0; i < 16; ++i) fits[i] = FitScale(x + 16 * i, 16, -32, 31);
  const float d = SignedScales(fits, 16, -128, 127, b + 208, scales);
  for (int i = 0; i < 16; ++i) b[192 + i] = static_cast<uint8_t>(scales[i]);
  for (int i = 0; i < 256; ++i) {
    const int half = i / 128, in = i % 128;
    const int q = RoundTo(x[i] * Inverse(d * static_cast<float>(scales[i / 16])), -32, 31) + 32;
    b[half * 64 + in % 64] |= static_cast<uint8_t>((q & 15) << (in / 64 * 4));
    b[128 + half * 32 + in % 32] |= static_cast<uint8_t>((q >> 4) << (in / 32 * 2));
  }
}

void IQ4_NL(const float* x, uint8_t* b) {
  const float inverse = Inverse(PutHalf(b, FitIQ4(x)));
  for (int j = 0; j < 32; ++j)
    b[2 + j % 16] |= static_cast<uint8_t>(NearestIQ4(x[j] * inverse) << (j / 16 * 4));
}

void IQ4_XS(const float* x, uint8_t* b) {
  float fits[8];
  int scales[8];
  for (int i = 0; i < 8; ++i) fits[i] = FitIQ4(x + 32 * i);
  const float d = SignedScales(fits, 8, -32, 31, b, scales);
  for (int i = 0; i < 8; ++i) {
    const int s = scales[i] + 32;
    b[4 + i / 2] |= static_cast<uint8_t>((s & 15) << (i % 2 * 4));
    b[2 + i / 4] |= static_cast<uint8_t>((s >> 4) << (i % 4 * 2));
    const float inverse = Inverse(d * static_cast<float>(scales[i]));
    for (int j = 0; j < 32; ++j) {
      b[8 + 16 * i + j % 16] |=
          static_cast<uint8_t>(NearestIQ4(x[32 * i + j] * inverse) << (j / 16 * 4));
    }
  }
}

int NearestFP4(float x) {
  const float size = std::fabs(x);
  int code = 0;  // a tie goes to the even code
  for (int c = 1; c < 8; ++c) {
    const float middle = 0.5f * static_cast<float>(kFP4Values[c - 1] + kFP4Values[c]);
    if (size > middle || (size == middle && c % 2 == 0)) code = c;
  }
  return std::signbit(x) ? code | 8 : code;
}

// The exponent that gives the largest value a code of 8 to 12, or the next, which holds values
// between 12 and 16 better: whichever errs less.
void MXFP4(const float* x, uint8_t* b) {
  const float largest = std::fabs(Extreme(x, 32));
  const int first = largest > 0 && std::isfinite(largest) ? std::ilogb(largest) - 2 + 127 : 0;
  float least = INFINITY;
  for (int e = std::clamp(first, 0, 253); e <= std::clamp(first + 1, 0, 254); ++e) {
    const float scale = FP4Scale(static_cast<uint8_t>(e));
    uint8_t block[17] = {static_cast<uint8_t>(e)};
    float error = 0;
    for (int j = 0; j < 32; ++j) {
      const int code = NearestFP4(x[j] / scale);
      const float miss = x[j] - scale * static_cast<float>(kFP4Values[static_cast<size_t>(code)]);
      error += miss * miss;
      block[1 + j % 16] |= static_cast<uint8_t>(code << (j / 16 * 4));
    }
    if (error < least) std::memcpy(b, block, sizeof(block));
    least = std::min(least, error);
  }
}

void F8_32(const float* x, uint8_t* b) {
  const float d = std::fabs(Extreme(x, 32)) / 448;
  std::memcpy(b, &d, 4);
  for (int j = 0; j < 32; ++j) b[4 + j] = FloatToF8(x[j] * Inverse(d));
}

// Every backend rounds like this, or conformance tests see codes that differ by one: q =
// round-half-even(x * (1 / d)) with d = max|x| / 127, all in f32.
void Q8_A32(const float* x, uint8_t* b) {
  BlockQ8A32 block{};
  block.d = std::fabs(Extreme(x, 32)) / 127;
  const float inverse = Inverse(block.d);
  for (int j = 0; j < 32; ++j) {
    block.q[j] = static_cast<int8_t>(RoundTo(x[j] * inverse, -127, 127));
    block.sum[j / 16] = static_cast<int16_t>(block.sum[j / 16] + block.q[j]);
  }
  std::memcpy(b, &block, sizeof(block));
}

void Blocks(void (*encode)(const float*, uint8_t*), DType t, const float* src, void* dst,
            int64_t count) {
  auto* p = static_cast<uint8_t*>(dst);
  std::memset(p, 0, static_cast<size_t>(Bytes(t, count)));
  for (int64_t i = 0; i < count; i += Info(t).block, p += Info(t).bytes) encode(src + i, p);
}

}  // namespace

uint8_t FloatToF8(float f) {
  const auto sign = static_cast<uint8_t>(std::signbit(f) ? 0x80 : 0);
  if (std::isnan(f)) return sign | 0x7f;
  const float size = std::fabs(f);
  if (size >= 448) return sign | 0x7e;
  // The distance of neighbours at this size; what rounds up to the next power of two has its code.
  const int exponent = size < 0.015625f ? -6 : std::ilogb(size);
  const auto steps = static_cast<int>(std::nearbyint(std::ldexp(size, 3 - exponent)));
  if (exponent == -6 && steps < 8) return static_cast<uint8_t>(sign | steps);  // subnormal
  return static_cast<uint8_t>(sign | ((exponent + 6) * 8 + steps));
}

uint16_t FloatToHalf(float f) {
  uint32_t u;
  std::memcpy(&u, &f, 4);
  const auto sign = static_cast<uint16_t>(u >> 16 & 0x8000);
  u &= 0x7fffffff;
  if (u > 0x7f800000) return static_cast<uint16_t>(sign | 0x7e00);  // NaN
  if (u >= 0x477ff000)
    return static_cast<uint16_t>(sign | 0x7c00);  // 65520 and more round to infinity
  if (u < 0x33000001) return sign;                // 2^-25 and less round to zero
  const int exponent = static_cast<int>(u >> 23) - 127;
  uint32_t mantissa = (u & 0x7fffff) | 0x800000;
  // Bits that do not fit: 13, and more for subnormals.
  const int drop = exponent >= -14 ? 13 : 13 + (-14 - exponent);
  const uint32_t rest = mantissa & ((1u << drop) - 1), half = 1u << (drop - 1);
  mantissa >>= drop;
  if (rest > half || (rest == half && (mantissa & 1))) ++mantissa;
  // A carry out of the mantissa lands in the exponent, as it should.
  const uint32_t base = exponent >= -14 ? static_cast<uint32_t>(exponent + 14) << 10 : 0;
  return static_cast<uint16_t>(sign | (base + mantissa));
}

uint16_t FloatToBFloat(float f) {
  uint32_t u;
  std::memcpy(&u, &f, 4);
  if ((u & 0x7fffffff) > 0x7f800000) return static_cast<uint16_t>(u >> 16 | 0x40);
  return static_cast<uint16_t>((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

void Quantize(DType t, const float* src, void* dst, int64_t count) {
  auto* bytes = static_cast<uint8_t*>(dst);
  switch (t) {
    case DType::kF32:
      std::memcpy(dst, src, static_cast<size_t>(count) * 4);
      return;
    case DType::kF16:
      for (int64_t i = 0; i < count; ++i) PutHalf(bytes + 2 * i, src[i]);
      return;
    case DType::kBF16:
      for (int64_t i = 0; i < count; ++i) {
        const uint16_t b = FloatToBFloat(src[i]);
        bytes[2 * i] = static_cast<uint8_t>(b);
        bytes[2 * i + 1] = static_cast<uint8_t>(b >> 8);
      }
      return;
    case DType::kF8_E4M3:
      for (int64_t i = 0; i < count; ++i) bytes[i] = FloatToF8(src[i]);
      return;
    case DType::kQ4_0:
      return Blocks(Symmetric<4>, t, src, dst, count);
    case DType::kQ5_0:
      return Blocks(Symmetric<5>, t, src, dst, count);
    case DType::kQ4_1:
      return Blocks(WithMinimum<4>, t, src, dst, count);
    case DType::kQ5_1:
      return Blocks(WithMinimum<5>, t, src, dst, count);
    case DType::kQ8_0:
      return Blocks(Q8_0, t, src, dst, count);
    case DType::kQ2_K:
      return Blocks(Q2_K, t, src, dst, count);
    case DType::kQ3_K:
      return Blocks(Q3_K, t, src, dst, count);
    case DType::kQ4_K:
      return Blocks(Q4_K, t, src, dst, count);
    case DType::kQ5_K:
      return Blocks(Q5_K, t, src, dst, count);
    case DType::kQ6_K:
      return Blocks(Q6_K, t, src, dst, count);
    case DType::kIQ4_NL:
      return Blocks(IQ4_NL, t, src, dst, count);
    case DType::kIQ4_XS:
      return Blocks(IQ4_XS, t, src, dst, count);
    case DType::kMXFP4:
      return Blocks(MXFP4, t, src, dst, count);
    case DType::kF8_32:
      return Blocks(F8_32, t, src, dst, count);
    case DType::kQ8_A32:
      return Blocks(Q8_A32, t, src, dst, count);
    case DType::kI32:
    case DType::kI64:
    case DType::kI8:
    case DType::kU8:
      return;  // REQUIRES: not an integer type
  }
}

}  // namespace vt::ir
