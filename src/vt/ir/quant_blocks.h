// What the readers and writers of block formats share: packed scales and value tables (GGUF's block
// structures).
#pragma once

#include <array>
#include <bit>
#include <cstdint>

namespace vt::ir {

// The sixteen values of IQ4_NL and IQ4_XS, in units of the block's scale.
inline constexpr std::array<int8_t, 16> kIQ4Values = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                      1,    13,   25,  38,  53,  69,  89,  113};

// The sixteen values of MXFP4's 4-bit floats (a sign, two bits of exponent, one of mantissa), twice
// what they are, so that they are integers.
inline constexpr std::array<int8_t, 16> kFP4Values = {0, 1,  2,  3,  4,  6,  8,  12,
                                                      0, -1, -2, -3, -4, -6, -8, -12};

// What those integers are multiplied by: half of the power of two that exponent e stands for, 2^(e
// - 128). 255 is not a number.
inline float FP4Scale(uint8_t e) {
  const uint32_t bits = e == 255 ? 0x7fc00000u : e > 1 ? (e - 1u) << 23 : 0x200000u << e;
  return std::bit_cast<float>(bits);
}

struct ScaleMin {
  int scale, min;
};

// Q4_K and Q5_K: eight pairs of 6-bit (scale, min) in 12 bytes. Bytes 0..3 hold the scales 0..3,
// bytes 4..7 the mins 0..3; their two top bits and the nibbles of bytes 8..11 make the other four
// pairs.
inline ScaleMin KScaleMin(const uint8_t* p, int i) {
  if (i < 4) return {p[i] & 63, p[i + 4] & 63};
  return {(p[i + 4] & 15) | (p[i - 4] >> 6) << 4, (p[i + 4] >> 4) | (p[i] >> 6) << 4};
}

inline void SetKScaleMin(uint8_t* p, int i,
                         ScaleMin s) {  // REQUIRES: the 12 bytes were zero at first
  if (i < 4) {
    p[i] |= static_cast<uint8_t>(s.scale);
    p[i + 4] |= static_cast<uint8_t>(s.min);
  } else {
    p[i + 4] |= static_cast<uint8_t>((s.scale & 15) | (s.min & 15) << 4);
    p[i - 4] |= static_cast<uint8_t>(s.scale >> 4 << 6);
    p[i] |= static_cast<uint8_t>(s.min >> 4 << 6);
  }
}

// Q3_K: sixteen 6-bit scales, stored plus 32, in 12 bytes: low nibbles in bytes 0..7, two top bits
// in bytes 8..11.
inline int Q3KScale(const uint8_t* p, int i) {
  const int low = i < 8 ? p[i] & 15 : p[i - 8] >> 4;
  return (low | (p[8 + i % 4] >> (i / 4 * 2) & 3) << 4) - 32;
}

inline void SetQ3KScale(uint8_t* p, int i,
                        int scale) {  // REQUIRES: the 12 bytes were zero at first
  const int s = scale + 32;
  p[i % 8] |= static_cast<uint8_t>((s & 15) << (i < 8 ? 0 : 4));
  p[8 + i % 4] |= static_cast<uint8_t>(s >> 4 << (i / 4 * 2));
}

}  // namespace vt::ir
