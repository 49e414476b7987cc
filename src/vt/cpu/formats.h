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
  kPower,       // u8 e[nr] a block: d = 2^(e - 128); w = d q
  kHalf,        // f16 d[nr] a block; w = d (q - zero)
  kHalfMin,     // f16 d[nr], f16 m[nr] a block; w = d q + m
  kSuper32Min,  // f16 d[nr], f16 dmin[nr], u8 scale[8][nr], u8 min[8][nr]; w = d scale q - dmin min
  kSuper32,     // f16 d[nr], i8 scale[8][nr]; w = d scale q
  kSuper16,     // f16 d[nr], i8 scale[16][nr]; w = d scale (q - zero)
  kSuper16Min,  // f16 d[nr], f16 dmin[nr], u8 (scale | min << 4)[16][nr]; w = d scale q - dmin min
};

// What codes of four bits name, if not themselves; 4-bit floats are twice their values and 12 more,
// which makes them small unsigned numbers.
enum class CodeTable : uint8_t { kNone, kIQ4, kFP4 };

struct FormatSpec {
  int low_bits = 0;  // 0: not a panel format
  int high_bits = 0;
  bool is_signed = false;  // codes are i8
  CodeTable table = CodeTable::kNone;
  ScaleKind scale = ScaleKind::kHalf;
  int zero = 0;
  int super = 1;
};

constexpr FormatSpec SpecOf(ir::DType t) {
  using enum ir::DType;
  switch (t) {
    case kQ4_0:
      return {4, 0, false, CodeTable::kNone, ScaleKind::kHalf, 8, 1};
    case kQ4_1:
      return {4, 0, false, CodeTable::kNone, ScaleKind::kHalfMin, 0, 1};
    case kQ5_0:
      return {4, 1, false, CodeTable::kNone, ScaleKind::kHalf, 16, 1};
    case kQ5_1:
      return {4, 1, false, CodeTable::kNone, ScaleKind::kHalfMin, 0, 1};
    case kQ8_0:
      return {8, 0, true, CodeTable::kNone, ScaleKind::kHalf, 0, 1};
    case kQ2_K:
      return {2, 0, false, CodeTable::kNone, ScaleKind::kSuper16Min, 0, 8};
    case kQ3_K:
      return {2, 1, false, CodeTable::kNone, ScaleKind::kSuper16, 4, 8};
    case kQ4_K:
      return {4, 0, false, CodeTable::kNone, ScaleKind::kSuper32Min, 0, 8};
    case kQ5_K:
      return {4, 1, false, CodeTable::kNone, ScaleKind::kSuper32Min, 0, 8};
    case kQ6_K:
      return {4, 2, false, CodeTable::kNone, ScaleKind::kSuper16, 32, 8};
    case kIQ4_NL:
      return {4, 0, true, CodeTable::kIQ4, ScaleKind::kHalf, 0, 1};
    case kIQ4_XS:
      return {4, 0, true, CodeTable::kIQ4, ScaleKind::kSuper32, 0, 8};
    case kMXFP4:
      return {4, 0, false, CodeTable::kFP4, ScaleKind::kPower, 12, 1};
    default:
      return {};
  }
}

// Whether its rows are multiplied by activations of Q8_A32 instead of floats.
constexpr bool TakesInt8(ir::DType t) { return SpecOf(t).low_bits != 0; }

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
    case ScaleKind::kPower:
      return 1;
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

// A panel of F8_32: of every 32 values of k the scales f32 d[nr], then the codes [32][nr].
constexpr int64_t F8PanelBytes(int nr, int64_t k) { return k / 32 * nr * 36; }

// Bytes of a row of activations: blocks of quant.h's BlockQ8A32.
constexpr int64_t ActivationRowBytes(int64_t k) { return k / 32 * 40; }

}  // namespace vt::cpu
