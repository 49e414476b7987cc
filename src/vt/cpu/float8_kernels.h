// x w^T for weights of F8_32: panels of formats.h against f32 activations. An 8-bit float becomes a
// half by moving its bits; what its exponent is then too small by is in the scale.
#pragma once

#include "vt/cpu/float_kernels.h"

namespace vt::cpu {
namespace {

constexpr int64_t kF8Block = F8PanelBytes(kNr, 32);
constexpr float kF8Unit = 256;  // 2^(15 - 7): the exponents' biases

// nr codes, divided by kF8Unit. The one code that is no number reads as 480.
inline vf LoadF8(const std::byte* p) {
#if defined(__AVX512F__)
  const __m256i c = _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  const __m256i size = _mm256_and_si256(_mm256_slli_epi16(c, 7), _mm256_set1_epi16(0x3f80));
  const __m256i sign = _mm256_and_si256(c, _mm256_set1_epi16(static_cast<int16_t>(0x8000)));
  return (vf)_mm512_cvtph_ps(_mm256_or_si256(size, sign));
#elif defined(__F16C__)
  const __m128i c = _mm_cvtepi8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  const __m128i size = _mm_and_si128(_mm_slli_epi16(c, 7), _mm_set1_epi16(0x3f80));
  const __m128i sign = _mm_and_si128(c, _mm_set1_epi16(static_cast<int16_t>(0x8000)));
  return (vf)_mm256_cvtph_ps(_mm_or_si128(size, sign));
#else
  vf v;
  for (int i = 0; i < kNr; ++i) {
    const auto c = static_cast<uint32_t>(p[i]);
    v[i] = HalfBitsToFloat(static_cast<uint16_t>((c & 0x7f) << 7 | (c & 0x80) << 8));
  }
  return v;
#endif
}
inline vf LoadF8Scale(const std::byte* p) { return LoadAs<vf>(p) * kF8Unit; }

// A block has one scale, so a sum of its own.
template <int M>
void F8Gemv(const LinearArgs& a, int64_t begin, int64_t end) {
  constexpr int kUnroll = 4;
  const float* x[M];
  for (int m = 0; m < M; ++m) x[m] = FloatRow(a, m);
  for (int64_t panel = begin; panel < end; ++panel) {
    const std::byte* p = a.w + panel * a.panel_bytes;
    vf acc[M] = {};
    for (int64_t k = 0; k < a.k; k += 32, p += kF8Block) {
      for (int64_t c = 0; c < kF8Block; c += 64) __builtin_prefetch(p + 1024 + c);
      vf sums[M][kUnroll] = {};
      for (int i = 0; i < 32; i += kUnroll) {
#pragma GCC unroll 4
        for (int u = 0; u < kUnroll; ++u) {
          const vf w = LoadF8(p + (4 + i + u) * kNr);
          for (int m = 0; m < M; ++m) sums[m][u] += w * x[m][k + i + u];
        }
      }
      const vf d = LoadF8Scale(p);
      for (int m = 0; m < M; ++m)
        acc[m] += d * ((sums[m][0] + sums[m][1]) + (sums[m][2] + sums[m][3]));
    }
    for (int m = 0; m < M; ++m) WriteRow(a, m, panel, acc[m]);
  }
}

// A panel as floats [k][nr].
inline void WidenF8(const std::byte* p, int64_t k, float* out) {
  for (int64_t i = 0; i < k; i += 32, p += kF8Block) {
    const vf d = LoadF8Scale(p);
    for (int j = 0; j < 32; ++j, out += kNr) Store(out, d * LoadF8(p + (4 + j) * kNr));
  }
}

void F8Linear(const LinearArgs& a, int64_t begin, int64_t end, std::byte* scratch) {
  switch (a.rows) {
    case 1:
      return F8Gemv<1>(a, begin, end);
    case 2:
      return F8Gemv<2>(a, begin, end);
    case 3:
      return F8Gemv<3>(a, begin, end);
    default:
      break;
  }
  float* const w0 = reinterpret_cast<float*>(scratch);
  float* const w1 = w0 + a.k * kNr;
  for (int64_t panel = begin; panel < end; panel += 2) {
    const int64_t panels = panel + 1 < end ? 2 : 1;
    WidenF8(a.w + panel * a.panel_bytes, a.k, w0);
    if (panels == 2) WidenF8(a.w + (panel + 1) * a.panel_bytes, a.k, w1);
    for (int64_t r = 0; r < a.rows; r += 6)
      FloatTile<6>(a, r, panel, panels, w0, panels == 2 ? w1 : w0);
  }
}

void F8ReadRow(const std::byte* panel, int lane, int64_t k, float* out, std::byte*) {
  for (int64_t i = 0; i < k; ++i) {
    const std::byte* p = panel + i / 32 * kF8Block;
    out[i] = LoadF8Scale(p)[lane] * LoadF8(p + (4 + i % 32) * kNr)[lane];
  }
}

}  // namespace
}  // namespace vt::cpu
