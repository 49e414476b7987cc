// The vector types of the kernels, in the width of the instruction set that this file is compiled
// for.
//
// Included only by the kernels' translation units, each compiled with its own flags: everything is
// in an anonymous namespace, so that no function compiled for one instruction set is ever linked
// into another. Arithmetic is that of GCC's and Clang's vector extension; only what it cannot say
// is an intrinsic.
#pragma once

#include <cstdint>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace vt::cpu {
namespace {

#if defined(__AVX512F__) && defined(__AVX512BW__)
constexpr int kNr = 16;
#else
constexpr int kNr = 8;
#endif
#if defined(__AVX512VNNI__)
constexpr bool kHasVnni = true;
#else
constexpr bool kHasVnni = false;
#endif
constexpr int kVectorBytes = 4 * kNr;

typedef float vf __attribute__((vector_size(kVectorBytes)));
typedef int32_t vi __attribute__((vector_size(kVectorBytes)));
typedef uint32_t vu __attribute__((vector_size(kVectorBytes)));
typedef uint16_t vu16h __attribute__((vector_size(kVectorBytes / 2)));
typedef uint8_t vu8q __attribute__((vector_size(kVectorBytes / 4)));
typedef int8_t vi8q __attribute__((vector_size(kVectorBytes / 4)));

template <typename V>
inline V LoadAs(const void* p) {
  V v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}
template <typename V>
inline void StoreAs(void* p, V v) {
  __builtin_memcpy(p, &v, sizeof v);
}
// Keeps the compiler from moving what made `v` past other pinned values: left alone, GCC computes
// all products of an unrolled tile before any sum, and spills them.
inline void Pin(vi& v) {
#if defined(__AVX512F__)
  asm volatile("" : "+v"(v));
#elif defined(__AVX2__)
  asm volatile("" : "+x"(v));
#endif
  (void)v;
}
inline vf Load(const float* p) { return LoadAs<vf>(p); }
inline void Store(float* p, vf v) { StoreAs(p, v); }

inline vf Splat(float x) { return x - vf{}; }
inline vi SplatInt(int32_t x) { return x - vi{}; }
// Four successive activations in every lane.
inline vi SplatWord(const int8_t* p) {
  int32_t w;
  __builtin_memcpy(&w, p, 4);
  return SplatInt(w);
}

inline vf ToFloat(vi v) { return __builtin_convertvector(v, vf); }
inline vi WidenU8(const uint8_t* p) {
#if defined(__AVX512F__)
  return (vi)_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
#elif defined(__AVX2__)
  return (vi)_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
#else
  return __builtin_convertvector(LoadAs<vu8q>(p), vi);
#endif
}
inline vi WidenI8(const uint8_t* p) {
#if defined(__AVX512F__)
  return (vi)_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
#elif defined(__AVX2__)
  return (vi)_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
#else
  return __builtin_convertvector(LoadAs<vi8q>(p), vi);
#endif
}

inline float HalfBitsToFloat(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000) << 16;
  const uint32_t rest = h & 0x7fff;
  float f;
  uint32_t u;
  if (rest >= 0x7c00) {
    u = 0x7f800000u | (rest & 0x3ff) << 13;
  } else if (rest >= 0x400) {
    u = (rest << 13) + 0x38000000u;
  } else {
    f = static_cast<float>(rest) * 0x1p-24f;
    __builtin_memcpy(&u, &f, 4);
  }
  u |= sign;
  __builtin_memcpy(&f, &u, 4);
  return f;
}

inline vf LoadHalf(const void* p) {
#if defined(__AVX512F__)
  return (vf)_mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
#elif defined(__F16C__)
  return (vf)_mm256_cvtph_ps(_mm_loadu_si128(static_cast<const __m128i*>(p)));
#else
  vf v;
  for (int i = 0; i < kNr; ++i) {
    uint16_t h;
    __builtin_memcpy(&h, static_cast<const char*>(p) + 2 * i, 2);
    v[i] = HalfBitsToFloat(h);
  }
  return v;
#endif
}

// Round to nearest even.
inline uint16_t HalfBits(float f) {
#if defined(__F16C__)
  return _cvtss_sh(f, 0);
#else
  uint32_t u;
  __builtin_memcpy(&u, &f, 4);
  const uint32_t sign = u >> 16 & 0x8000, a = u & 0x7fffffff;
  if (a > 0x7f800000) return static_cast<uint16_t>(sign | 0x7e00);
  if (a >= 0x477ff000) return static_cast<uint16_t>(sign | 0x7c00);
  if (a < 0x38800000) {  // subnormal: let the float adder round at 2^-24
    float x;
    __builtin_memcpy(&x, &a, 4);
    x += 0.5f;
    uint32_t r;
    __builtin_memcpy(&r, &x, 4);
    return static_cast<uint16_t>(sign | (r - 0x3f000000));
  }
  return static_cast<uint16_t>(sign | ((a - 0x38000000 + 0xfff + (a >> 13 & 1)) >> 13));
#endif
}

// bf16, rounded to nearest even; NaN stays NaN.
inline uint16_t BrainBits(float f) {
  uint32_t u;
  __builtin_memcpy(&u, &f, 4);
  if ((u & 0x7fffffff) > 0x7f800000) return static_cast<uint16_t>(u >> 16 | 0x40);
  return static_cast<uint16_t>((u + 0x7fff + (u >> 16 & 1)) >> 16);
}
inline vf LoadBf16(const void* p) {
  return (vf)(__builtin_convertvector(LoadAs<vu16h>(p), vu) << 16);
}

inline vf Max(vf a, vf b) { return a > b ? a : b; }
inline vf Min(vf a, vf b) { return a < b ? a : b; }
inline float Sum(vf v) {
#if defined(__AVX512F__)
  return _mm512_reduce_add_ps((__m512)v);
#else
  float s[kNr];
  __builtin_memcpy(s, &v, sizeof s);
  return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
#endif
}
inline float MaxLane(vf v) {
  float m = v[0];
  for (int i = 1; i < kNr; ++i) m = v[i] > m ? v[i] : m;
  return m;
}

// --- integer dot products: 4 products a lane.

// A product that must be rounded by itself: keeps the compiler from fusing it with the addition
// that follows, so that activation codes are the same on machines with and without fused
// multiply-add.
inline vf Unfused(vf v) {
#if defined(__AVX2__)
  __asm__("" : "+x"(v));
#endif
  return v;
}

// u8 (at most `127 * 2 * w` fits 16 bits) x i8, as pairs in 16 bits.
#if defined(__AVX2__)
inline vi PairDot(vi w, vi a) {
#if defined(__AVX512BW__)
  return (vi)_mm512_maddubs_epi16((__m512i)w, (__m512i)a);
#else
  return (vi)_mm256_maddubs_epi16((__m256i)w, (__m256i)a);
#endif
}
inline vi Add16(vi a, vi b) {
#if defined(__AVX512BW__)
  return (vi)_mm512_add_epi16((__m512i)a, (__m512i)b);
#else
  return (vi)_mm256_add_epi16((__m256i)a, (__m256i)b);
#endif
}
// Sums of the pairs, in 32 bits.
inline vi SumPairs(vi a) {
#if defined(__AVX512BW__)
  return (vi)_mm512_madd_epi16((__m512i)a, _mm512_set1_epi16(1));
#else
  return (vi)_mm256_madd_epi16((__m256i)a, _mm256_set1_epi16(1));
#endif
}
#endif

// acc + u8 x i8.
inline vi DotU8(vi acc, vi w, vi a) {
#if defined(__AVX512VNNI__)
  return (vi)_mm512_dpbusd_epi32((__m512i)acc, (__m512i)w, (__m512i)a);
#elif defined(__AVX2__)
  return acc + SumPairs(PairDot(w, a));
#else
  for (int r = 0; r < kNr; ++r) {
    const uint32_t x = static_cast<uint32_t>(w[r]), y = static_cast<uint32_t>(a[r]);
    int32_t s = acc[r];
    for (int i = 0; i < 32; i += 8)
      s += static_cast<int32_t>(x >> i & 0xff) * static_cast<int8_t>(y >> i);
    acc[r] = s;
  }
  return acc;
#endif
}

// What signed codes have added when they are loaded: VNNI multiplies unsigned by signed bytes, so
// they become unsigned by +128 and the excess is taken off through the activations' sums.
constexpr int kSignedOffset = kHasVnni ? 128 : 0;

// acc + i8 x i8 where w carries kSignedOffset.
inline vi DotSigned(vi acc, vi w, vi a) {
#if defined(__AVX512VNNI__)
  return DotU8(acc, w, a);
#elif defined(__AVX512BW__)
  const __m512i x = (__m512i)w;
  const __mmask64 negative = _mm512_movepi8_mask(x);
  const __m512i y = _mm512_mask_sub_epi8((__m512i)a, negative, _mm512_setzero_si512(), (__m512i)a);
  return acc + SumPairs((vi)_mm512_maddubs_epi16(_mm512_abs_epi8(x), y));
#elif defined(__AVX2__)
  const __m256i x = (__m256i)w;
  return acc +
         SumPairs((vi)_mm256_maddubs_epi16(_mm256_abs_epi8(x), _mm256_sign_epi8((__m256i)a, x)));
#else
  for (int r = 0; r < kNr; ++r) {
    const uint32_t x = static_cast<uint32_t>(w[r]), y = static_cast<uint32_t>(a[r]);
    int32_t s = acc[r];
    for (int i = 0; i < 32; i += 8) s += static_cast<int8_t>(x >> i) * static_cast<int8_t>(y >> i);
    acc[r] = s;
  }
  return acc;
#endif
}

// table[byte] for bytes below 16.
inline vi Lookup16(const int8_t table[16], vi bytes) {
#if defined(__AVX512BW__)
  const __m128i t = _mm_loadu_si128(reinterpret_cast<const __m128i*>(table));
  return (vi)_mm512_shuffle_epi8(_mm512_broadcast_i32x4(t), (__m512i)bytes);
#elif defined(__AVX2__)
  const __m128i t = _mm_loadu_si128(reinterpret_cast<const __m128i*>(table));
  return (vi)_mm256_shuffle_epi8(_mm256_broadcastsi128_si256(t), (__m256i)bytes);
#else
  uint8_t b[kVectorBytes];
  __builtin_memcpy(b, &bytes, sizeof b);
  for (uint8_t& x : b) x = static_cast<uint8_t>(table[x]);
  return LoadAs<vi>(b);
#endif
}

// --- elementary functions; relative error below 2e-7 (exp) and 4e-7 (others)

// Cody and Waite's reduction and a polynomial of degree 6 (Cephes' expf). 0 below -87.33, infinity
// above 88.72.
__attribute__((always_inline)) inline vf Exp(vf x) {
  const vf lo = Splat(-87.33654f), hi = Splat(88.72283f);
  const vf magic = Splat(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
  const vf clamped = Min(Max(x, lo), hi);
  const vf n = (clamped * 1.44269504088896341f + magic) - magic;
  const vf r = (clamped - n * 0.693359375f) + n * 2.12194440e-4f;
  vf p = r * 1.9875691500e-4f + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  // In two factors, since 2^128 itself is not a float.
  const vi e = __builtin_convertvector(n, vi);
  const vi half = e >> 1;
  vf y = p * (vf)((half + 127) << 23) * (vf)((e - half + 127) << 23);
  y = x < lo ? vf{} : y;
  y = x > hi ? Splat(__builtin_inff()) : y;
  return x == x ? y : x;
}

inline vf Sigmoid(vf x) { return 1.0f / (1.0f + Exp(-x)); }

__attribute__((always_inline)) inline vf Tanh(vf x) {
  const vf a = x < 0.0f ? -x : x;
  const vf big = 1.0f - 2.0f / (Exp(a + a) + 1.0f);
  const vf z = x * x;
  vf p = z * -5.70498872745e-3f + 2.06390887954e-2f;
  p = p * z - 5.37397155531e-2f;
  p = p * z + 1.33314422036e-1f;
  p = p * z - 3.33332819422e-1f;
  const vf small = p * z * x + x;
  return a < 0.625f ? small : (x < 0.0f ? -big : big);
}

}  // namespace
}  // namespace vt::cpu
