// From stored blocks to f32, as the GGUF specification's block structures say. Byte by byte, so
// neither alignment nor the machine's instruction set matters. Halves are little-endian, as in the
// files.
#include <cmath>
#include <cstring>

#include "vt/ir/quant.h"
#include "vt/ir/quant_blocks.h"

namespace vt::ir {
namespace {

float HalfAt(const uint8_t* p) { return HalfToFloat(static_cast<uint16_t>(p[0] | p[1] << 8)); }

void Q4_0(const uint8_t* b, float* y) {
  const float d = HalfAt(b);
  for (int j = 0; j < 16; ++j) {
    y[j] = d * static_cast<float>((b[2 + j] & 15) - 8);
    y[j + 16] = d * static_cast<float>((b[2 + j] >> 4) - 8);
  }
}

void Q4_1(const uint8_t* b, float* y) {
  const float d = HalfAt(b), m = HalfAt(b + 2);
  for (int j = 0; j < 16; ++j) {
    y[j] = d * static_cast<float>(b[4 + j] & 15) + m;
    y[j + 16] = d * static_cast<float>(b[4 + j] >> 4) + m;
  }
}

// The fifth bits of the 32 values, little-endian.
uint32_t HighBits(const uint8_t* p) {
  return p[0] | p[1] << 8 | p[2] << 16 | static_cast<uint32_t>(p[3]) << 24;
}

void Q5_0(const uint8_t* b, float* y) {
  const float d = HalfAt(b);
  const uint32_t high = HighBits(b + 2);
  for (int j = 0; j < 16; ++j) {
    const int lo = (b[6 + j] & 15) | static_cast<int>(high >> j & 1) << 4;
    const int hi = (b[6 + j] >> 4) | static_cast<int>(high >> (j + 16) & 1) << 4;
    y[j] = d * static_cast<float>(lo - 16);
    y[j + 16] = d * static_cast<float>(hi - 16);
  }
}

void Q5_1(const uint8_t* b, float* y) {
  const float d = HalfAt(b), m = HalfAt(b + 2);
  const uint32_t high = HighBits(b + 4);
  for (int j = 0; j < 16; ++j) {
    y[j] = d * static_cast<float>((b[8 + j] & 15) | (high >> j & 1) << 4) + m;
    y[j + 16] = d * static_cast<float>((b[8 + j] >> 4) | (high >> (j + 16) & 1) << 4) + m;
  }
}

void Q8_0(const uint8_t* b, float* y) {
  const float d = HalfAt(b);
  for (int j = 0; j < 32; ++j) y[j] = d * static_cast<float>(static_cast<int8_t>(b[2 + j]));
}

void Q2_K(const uint8_t* b, float* y) {
  const uint8_t* scales = b;
  const uint8_t* qs = b + 16;
  const float d = HalfAt(b + 80), dmin = HalfAt(b + 82);
  for (int i = 0; i < 256; ++i) {
    const int half = i / 128, shift = i % 128 / 32 * 2;
    const uint8_t s = scales[i / 16];
    const int q = qs[half * 32 + i % 32] >> shift & 3;
    y[i] =
        d * static_cast<float>(s & 15) * static_cast<float>(q) - dmin * static_cast<float>(s >> 4);
  }
}

void Q3_K(const uint8_t* b, float* y) {
  const uint8_t* high = b;  // bit i / 32 of byte i % 32
  const uint8_t* qs = b + 32;
  const float d = HalfAt(b + 108);
  for (int i = 0; i < 256; ++i) {
    const int half = i / 128, shift = i % 128 / 32 * 2;
    int q = qs[half * 32 + i % 32] >> shift & 3;
    if ((high[i % 32] >> (i / 32) & 1) == 0) q -= 4;
    y[i] = d * static_cast<float>(Q3KScale(b + 96, i / 16)) * static_cast<float>(q);
  }
}

void Q4_K(const uint8_t* b, float* y) {
  const float d = HalfAt(b), dmin = HalfAt(b + 2);
  for (int i = 0; i < 256; ++i) {
    const ScaleMin s = KScaleMin(b + 4, i / 32);
    const uint8_t packed = b[16 + i / 64 * 32 + i % 32];
    const int q = i % 64 < 32 ? packed & 15 : packed >> 4;
    y[i] =
        d * static_cast<float>(s.scale) * static_cast<float>(q) - dmin * static_cast<float>(s.min);
  }
}

void Q5_K(const uint8_t* b, float* y) {
  const float d = HalfAt(b), dmin = HalfAt(b + 2);
  for (int i = 0; i < 256; ++i) {
    const ScaleMin s = KScaleMin(b + 4, i / 32);
    const uint8_t packed = b[48 + i / 64 * 32 + i % 32];
    const int q = (i % 64 < 32 ? packed & 15 : packed >> 4) | (b[16 + i % 32] >> (i / 32) & 1) << 4;
    y[i] =
        d * static_cast<float>(s.scale) * static_cast<float>(q) - dmin * static_cast<float>(s.min);
  }
}

void Q6_K(const uint8_t* b, float* y) {
  const float d = HalfAt(b + 208);
  for (int i = 0; i < 256; ++i) {
    const int half = i / 128, in = i % 128;
    const uint8_t low = b[half * 64 + in % 64];
    const uint8_t high = b[128 + half * 32 + in % 32];
    const int q = ((in < 64 ? low & 15 : low >> 4) | (high >> (in / 32 * 2) & 3) << 4) - 32;
    y[i] = d * static_cast<float>(static_cast<int8_t>(b[192 + i / 16])) * static_cast<float>(q);
  }
}

void IQ4_NL(const uint8_t* b, float* y) {
  const float d = HalfAt(b);
  for (int j = 0; j < 16; ++j) {
    y[j] = d * static_cast<float>(kIQ4Values[b[2 + j] & 15]);
    y[j + 16] = d * static_cast<float>(kIQ4Values[b[2 + j] >> 4]);
  }
}

void IQ4_XS(const uint8_t* b, float* y) {
  const float d = HalfAt(b);
  const int scales_high = b[2] | b[3] << 8;
  for (int i = 0; i < 256; ++i) {
    const int sub = i / 32;
    const int scale =
        ((b[4 + sub / 2] >> (sub % 2 * 4) & 15) | (scales_high >> (2 * sub) & 3) << 4) - 32;
    const uint8_t packed = b[8 + sub * 16 + i % 16];
    y[i] = d * static_cast<float>(scale) *
           static_cast<float>(kIQ4Values[i % 32 < 16 ? packed & 15 : packed >> 4]);
  }
}

void MXFP4(const uint8_t* b, float* y) {
  const float d = FP4Scale(b[0]);
  for (int j = 0; j < 16; ++j) {
    y[j] = d * static_cast<float>(kFP4Values[b[1 + j] & 15]);
    y[j + 16] = d * static_cast<float>(kFP4Values[b[1 + j] >> 4]);
  }
}

void F8_32(const uint8_t* b, float* y) {
  float d;
  std::memcpy(&d, b, 4);
  for (int j = 0; j < 32; ++j) y[j] = d * F8ToFloat(b[4 + j]);
}

void Q8_A32(const uint8_t* b, float* y) {
  BlockQ8A32 block;
  std::memcpy(&block, b, sizeof(block));
  for (int j = 0; j < 32; ++j) y[j] = block.d * static_cast<float>(block.q[j]);
}

void Blocks(void (*decode)(const uint8_t*, float*), DType t, const void* src, float* dst,
            int64_t count) {
  const auto* p = static_cast<const uint8_t*>(src);
  for (int64_t i = 0; i < count; i += Info(t).block, p += Info(t).bytes) decode(p, dst + i);
}

}  // namespace

float F8ToFloat(uint8_t v) {
  const int exponent = v >> 3 & 15, mantissa = v & 7;
  const float sign = (v & 0x80) != 0 ? -1.0f : 1.0f;
  if (exponent == 15 && mantissa == 7) return NAN;
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(mantissa), -9);
  return sign * std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
}

float HalfToFloat(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000) << 16;
  const uint32_t exponent = h >> 10 & 31;
  uint32_t mantissa = h & 0x3ff;
  uint32_t bits;
  if (exponent == 31) {
    bits = sign | 0x7f800000 | mantissa << 13;
  } else if (exponent != 0) {
    bits = sign | (exponent + 112) << 23 | mantissa << 13;
  } else if (mantissa == 0) {
    bits = sign;
  } else {  // subnormal: shift the leading one into its place
    uint32_t e = 113;
    while ((mantissa & 0x400) == 0) {
      mantissa <<= 1;
      --e;
    }
    bits = sign | e << 23 | (mantissa & 0x3ff) << 13;
  }
  float f;
  std::memcpy(&f, &bits, 4);
  return f;
}

// Tables of small numbers.
template <typename T>
static void Integers(const void* src, float* dst, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    T v;
    std::memcpy(&v, static_cast<const std::byte*>(src) + i * static_cast<int64_t>(sizeof(T)),
                sizeof(T));
    dst[i] = static_cast<float>(v);
  }
}

void Dequantize(DType t, const void* src, float* dst, int64_t count) {
  const auto* u16 = static_cast<const uint8_t*>(src);
  switch (t) {
    case DType::kF32:
      std::memcpy(dst, src, static_cast<size_t>(count) * 4);
      return;
    case DType::kF16:
      for (int64_t i = 0; i < count; ++i) dst[i] = HalfAt(u16 + 2 * i);
      return;
    case DType::kBF16:
      for (int64_t i = 0; i < count; ++i) {
        dst[i] = BFloatToFloat(static_cast<uint16_t>(u16[2 * i] | u16[2 * i + 1] << 8));
      }
      return;
    case DType::kF8_E4M3:
      for (int64_t i = 0; i < count; ++i)
        dst[i] = F8ToFloat(static_cast<const uint8_t*>(static_cast<const void*>(src))[i]);
      return;
    case DType::kQ4_0:
      return Blocks(Q4_0, t, src, dst, count);
    case DType::kQ4_1:
      return Blocks(Q4_1, t, src, dst, count);
    case DType::kQ5_0:
      return Blocks(Q5_0, t, src, dst, count);
    case DType::kQ5_1:
      return Blocks(Q5_1, t, src, dst, count);
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
      return Integers<int32_t>(src, dst, count);
    case DType::kI64:
      return Integers<int64_t>(src, dst, count);
    case DType::kI8:
    case DType::kU8:
      return;  // REQUIRES: not of such a type
  }
}

}  // namespace vt::ir
