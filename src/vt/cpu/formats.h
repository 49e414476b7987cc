// How quantised weights lie in panels, for all formats at once.
//
// A panel is `nr` rows of a weight, interleaved so that one vector register holds nr rows x 4
// successive values of k. Every 32 values of a row are a block; `super` blocks share a header with
// the scales. A panel is a sequence of (header, super x codes). Codes of a block are 8 groups of 4
// values ("k-groups", one 32-bit word a row), split into bit planes so that the stored bits equal
// the file's:
//   low plane   8 bits: word j = k-group j · 4 bits: word j = k-group j | k-group j+4 << 4 ·
//               2 bits: word v = the four k-groups 4v .. 4v+3, 2 bits each
//   high plane  1 bit: one word, bit j of each byte = k-group j · 2 bits: as the low plane of 2
//   bits
// A weight is scale * code - minimum.
#pragma once

#include <cstdint>

#include "vt/ir/dtype.h"

namespace vt::cpu {

enum class ScaleKind : uint8_t {
  kHalf,        // f16 d[nr] a block; w = d (q - zero)
  kHalfMin,     // f16 d[nr], f16 m[nr] a block; w = d q + m
  kSuper32Min,  // f16 d[nr], f16 dmin[nr], u8 scale[8][nr], u8 min[8][nr]; w = d scale q - dmin min
  kSuper32,     // f16 d[nr], i8 scale[8][nr]; w = d scale q
  kSuper16,     // f16 d[nr], i8 scale[16][nr]; w = d scale (q - zero)
  kSuper16Min,  // f16 d[nr], f16 dmin[nr], u8 (scale | min << 4)[16][nr]; w = d scale q - dmin min
};

struct FormatSpec {
  int low_bits = 0;  // 0: not a panel format
  int high_bits = 0;
  bool is_signed = false;  // codes are i8
  bool lookup = false;     // 4-bit codes index the IQ4 table of signed values
  ScaleKind scale = ScaleKind::kHalf;
  int zero = 0;
  int super = 1;
};

constexpr FormatSpec SpecOf(ir::DType t) {
  using enum ir::DType;
  switch (t) {
    case kQ4_0:
      return {4, 0, false, false, ScaleKind::kHalf, 8, 1};
    case kQ4_1:
      return {4, 0, false, false, ScaleKind::kHalfMin, 0, 1};
    case kQ5_0:
      return {4, 1, false, false, ScaleKind::kHalf, 16, 1};
    case kQ5_1:
      return {4, 1, false, false, ScaleKind::kHalfMin, 0, 1};
    case kQ8_0:
      return {8, 0, true, false, ScaleKind::kHalf, 0, 1};
    case kQ2_K:
      return {2, 0, false, false, ScaleKind::kSuper16Min, 0, 8};
    case kQ3_K:
      return {2, 1, false, false, ScaleKind::kSuper16, 4, 8};
    case kQ4_K:
      return {4, 0, false, false, ScaleKind::kSuper32Min, 0, 8};
    case kQ5_K:
      return {4, 1, false, false, ScaleKind::kSuper32Min, 0, 8};
    case kQ6_K:
      return {4, 2, false, false, ScaleKind::kSuper16, 32, 8};
    case kIQ4_NL:
      return {4, 0, true, true, ScaleKind::kHalf, 0, 1};
    case kIQ4_XS:
      return {4, 0, true, true, ScaleKind::kSuper32, 0, 8};
    default:
      return {};
  }
}

// Words (of 4 bytes, a row) of codes in a block.
constexpr int LowWords(const FormatSpec& s) { return s.low_bits; }
constexpr int CodeWords(const FormatSpec& s) { return s.low_bits + s.high_bits; }

// Values that share a scale.
constexpr int GroupOf(const FormatSpec& s) {
  return s.scale == ScaleKind::kSuper16 || s.scale == ScaleKind::kSuper16Min ? 16 : 32;
}

// Bytes of a header, a row.
constexpr int HeaderBytesPerRow(const FormatSpec& s) {
  switch (s.scale) {
    case ScaleKind::kHalf:
      return 2;
    case ScaleKind::kHalfMin:
      return 4;
    case ScaleKind::kSuper32Min:
      return 4 + 16;
    case ScaleKind::kSuper32:
      return 2 + 8;
    case ScaleKind::kSuper16:
      return 2 + 16;
    case ScaleKind::kSuper16Min:
      return 4 + 16;
  }
  return 0;
}

constexpr int64_t PanelBytes(const FormatSpec& s, int nr, int64_t k) {
  return k / (32 * s.super) * nr * (HeaderBytesPerRow(s) + s.super * 4 * CodeWords(s));
}

// Values of the non-linear 4-bit formats (GGUF's IQ4_NL and IQ4_XS).
inline constexpr int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                          1,    13,   25,  38,  53,  69,  89,  113};

// Bytes of a row of activations: blocks of quant.h's BlockQ8A32.
constexpr int64_t ActivationRowBytes(int64_t k) { return k / 32 * 40; }

}  // namespace vt::cpu
