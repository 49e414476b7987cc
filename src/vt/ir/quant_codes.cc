#include "vt/ir/quant_codes.h"

#include <cstring>

namespace vt::ir {
namespace {

inline uint32_t Word(const uint8_t* p) {
  uint32_t w;
  std::memcpy(&w, p, 4);
  return w;
}

// 16 bytes with values 0..15 in the low halves and 16..31 in the high ones.
inline void Nibbles(const uint8_t* qs, uint32_t c[8]) {
  for (int j = 0; j < 4; ++j) {
    const uint32_t w = Word(qs + 4 * j);
    c[j] = w & 0x0f0f0f0f;
    c[j + 4] = w >> 4 & 0x0f0f0f0f;
  }
}
// 32 bytes of which one half byte each is used.
inline void HalfOf(const uint8_t* qs, int shift, uint32_t c[8]) {
  for (int j = 0; j < 8; ++j) c[j] = Word(qs + 4 * j) >> shift & 0x0f0f0f0f;
}
// Bit i of `bits` is bit 4 of value i. The product puts bit b of a half byte at the bottom of byte
// b.
inline void FifthBits(uint32_t bits, uint32_t c[8]) {
  for (int j = 0; j < 8; ++j) c[j] |= ((bits >> (4 * j) & 15) * 0x00204081 & 0x01010101) << 4;
}

}  // namespace

void BlockCodes(DType t, const uint8_t* p, int i, uint32_t c[8]) {
  using enum DType;
  switch (t) {
    case kQ4_0:
    case kIQ4_NL:
      return Nibbles(p + 2, c);
    case kMXFP4:
      return Nibbles(p + 1, c);
    case kQ4_1:
      return Nibbles(p + 4, c);
    case kQ5_0:
      Nibbles(p + 6, c);
      return FifthBits(Word(p + 2), c);
    case kQ5_1:
      Nibbles(p + 8, c);
      return FifthBits(Word(p + 4), c);
    case kQ8_0:
      std::memcpy(c, p + 2, 32);
      return;
    case kF8_32:
      std::memcpy(c, p + 4, 32);
      return;
    case kQ2_K:
      for (int j = 0; j < 8; ++j)
        c[j] = Word(p + 16 + 32 * (i / 4) + 4 * j) >> 2 * (i % 4) & 0x03030303;
      return;
    case kQ3_K:
      for (int j = 0; j < 8; ++j) {
        c[j] = (Word(p + 32 + 32 * (i / 4) + 4 * j) >> 2 * (i % 4) & 0x03030303) |
               (Word(p + 4 * j) >> i & 0x01010101) << 2;
      }
      return;
    case kQ4_K:
      return HalfOf(p + 16 + 32 * (i / 2), 4 * (i % 2), c);
    case kQ5_K:
      HalfOf(p + 48 + 32 * (i / 2), 4 * (i % 2), c);
      for (int j = 0; j < 8; ++j) c[j] |= (Word(p + 16 + 4 * j) >> i & 0x01010101) << 4;
      return;
    case kQ6_K:
      HalfOf(p + 64 * (i / 4) + 32 * (i % 2), 4 * (i / 2 % 2), c);
      for (int j = 0; j < 8; ++j)
        c[j] |= (Word(p + 128 + 32 * (i / 4) + 4 * j) >> 2 * (i % 4) & 0x03030303) << 4;
      return;
    case kIQ4_XS:
      return Nibbles(p + 8 + 16 * i, c);
    default:
      return;
  }
}

}  // namespace vt::ir
