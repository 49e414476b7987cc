// A block of 32 weights, whatever its format: its bits in registers, its codes and its scales.
#pragma once

#include "vt/gpu/args_quant.h"
#include "vt/gpu/tiles/common.h"

namespace vt::gpu {

// The bits of a block; what a format has no use for is never set.
struct QuantWords {
  uint32_t low[8], high[2], block, super[4];
};
// Of the block's halves. Formats with one scale have both the same.
struct QuantScales {
  float scale[2], min[2];
};

template <QuantFormat kF>
inline constexpr QuantSpec kQuantSpec = kQuantSpecs[static_cast<int>(kF)];
template <QuantFormat kF>
inline constexpr bool kQuantPairs =
    kQuantSpec<kF>.scale == QuantScale::kPairs || kQuantSpec<kF>.scale == QuantScale::kPairsMin ||
    kQuantSpec<kF>.scale == QuantScale::kSuperPairs;
template <QuantFormat kF>
inline constexpr bool kQuantMin =
    kQuantSpec<kF>.scale == QuantScale::kHalfMin || kQuantSpec<kF>.scale == QuantScale::kSuperMin ||
    kQuantSpec<kF>.scale == QuantScale::kPairsMin;

// Bytes as words from `to` on.
template <int kBytes>
GPU_FN void LoadQuant(const char* p, uint32_t* to) {
  if constexpr (kBytes == 1) {
    *to = *reinterpret_cast<const uint8_t*>(p);
  } else if constexpr (kBytes == 2) {
    *to = *reinterpret_cast<const uint16_t*>(p);
  } else if constexpr (kBytes == 4) {
    *to = *reinterpret_cast<const uint32_t*>(p);
  } else if constexpr (kBytes == 8) {
    const QuantPair w = *reinterpret_cast<const QuantPair*>(p);
    to[0] = w.v[0];
    to[1] = w.v[1];
  } else if constexpr (kBytes == 16) {
    const auto w = ::gpu::load_stream(reinterpret_cast<const ::gpu::Pack<uint32_t>*>(p));
#pragma unroll
    for (int i = 0; i < 4; ++i) to[i] = w.v[i];
  } else if constexpr (kBytes == 32) {
    LoadQuant<16>(p, to);
    LoadQuant<16>(p + 16, to + 4);
  }
}

// A row of a matrix: blocks of 32 values.
template <QuantFormat kF>
class QuantRow {
 public:
  static constexpr QuantSpec kSpec = kQuantSpec<kF>;

  QuantRow() = default;
  GPU_FN QuantRow(const QuantPlanes& p, int64_t row, int blocks)
      : low_(p.low + row * blocks * kLow),
        high_(p.high + row * blocks * kHigh),
        block_(p.block + row * blocks * kSpec.block),
        super_(p.super + row * (blocks / 8) * kSpec.super) {}

  GPU_FN QuantWords Load(int b) const {
    QuantWords w;
    LoadQuant<kLow>(low_ + b * kLow, w.low);
    LoadQuant<kHigh>(high_ + b * kHigh, w.high);
    LoadQuant<kSpec.block>(block_ + b * kSpec.block, &w.block);
    LoadQuant<kSpec.super>(super_ + b / 8 * kSpec.super, w.super);
    return w;
  }

 private:
  static constexpr int kLow = 4 * kSpec.low_bits, kHigh = 4 * kSpec.high_bits;
  const char *low_, *high_, *block_, *super_;
};

// The same where a matrix's blocks are counted through; those formats that have superblocks have
// eight blocks a superblock in every row.
template <QuantFormat kF>
GPU_FN QuantWords LoadWords(const QuantPlanes& p, int64_t at) {
  constexpr QuantSpec kSpec = kQuantSpec<kF>;
  QuantWords w;
  LoadQuant<4 * kSpec.low_bits>(p.low + at * (4 * kSpec.low_bits), w.low);
  LoadQuant<4 * kSpec.high_bits>(p.high + at * (4 * kSpec.high_bits), w.high);
  LoadQuant<kSpec.block>(p.block + at * kSpec.block, &w.block);
  LoadQuant<kSpec.super>(p.super + (at >> 3) * kSpec.super, w.super);
  return w;
}
template <QuantFormat kF>
GPU_FN void PrefetchWords(const QuantPlanes& p, int64_t at) {
  constexpr QuantSpec kSpec = kQuantSpec<kF>;
  ::gpu::prefetch(p.low + at * (4 * kSpec.low_bits));
  if (kSpec.high_bits != 0) ::gpu::prefetch(p.high + at * (4 * kSpec.high_bits));
  if (kSpec.block != 0) ::gpu::prefetch(p.block + at * kSpec.block);
  if (kSpec.super != 0) ::gpu::prefetch(p.super + (at >> 3) * kSpec.super);
}

// Codes as bytes, four of neighbouring values a word.
template <QuantFormat kF>
GPU_FN void CodesOf(const QuantWords& w, int (&codes)[8]) {
  constexpr QuantSpec kSpec = kQuantSpec<kF>;
  constexpr bool kLookup = kSpec.codes == QuantCodes::kIQ4 || kSpec.codes == QuantCodes::kFP4;
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    uint32_t c;
    if (kLookup) {
      // below
    } else if (kSpec.low_bits == 8) {
      c = w.low[j];
    } else if (kSpec.low_bits == 4) {
      c = w.low[j % 4] >> j / 4 * 4 & 0x0f0f0f0f;
    } else {
      c = w.low[j / 4] >> j % 4 * 2 & 0x03030303;
    }
    if (kSpec.high_bits == 1) {
      constexpr uint32_t kMask = 0x01010101u << kSpec.low_bits;
      c |= (j <= kSpec.low_bits ? w.high[0] << (kSpec.low_bits - j)
                                : w.high[0] >> (j - kSpec.low_bits)) &
           kMask;
    } else if (kSpec.high_bits == 2) {
      constexpr uint32_t kMask = 0x03030303u << kSpec.low_bits;
      const int at = j % 4 * 2;
      c |= (at <= kSpec.low_bits ? w.high[j / 4] << (kSpec.low_bits - at)
                                 : w.high[j / 4] >> (at - kSpec.low_bits)) &
           kMask;
    }
    if (!kLookup) codes[j] = static_cast<int>(c);
  }
  if constexpr (kLookup) {
    constexpr uint32_t kTables[2][4] = {
        // -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113
        {0xbfad9881, 0xf6eaddcf, 0x26190d01, 0x71594535},
        // 0, 1, 2, 3, 4, 6, 8, 12, and these negative
        {0x03020100, 0x0c080604, 0xfdfeff00, 0xf4f8fafc}};
    constexpr int kTable = kSpec.codes == QuantCodes::kIQ4 ? 0 : 1;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      uint32_t low, high;
      ::gpu::lookup16(kTables[kTable], w.low[j], low, high);
      codes[j] = static_cast<int>(low);
      codes[j + 4] = static_cast<int>(high);
    }
  }
}

GPU_FN float HalfOf(uint32_t bits) {
  return ::gpu::to_float(::gpu::f16{static_cast<uint16_t>(bits)});
}
GPU_FN float SmallFloat(uint32_t v) { return static_cast<float>(static_cast<int>(v)); }

// An 8-bit float becomes a half by moving its bits; its exponent is then too small by this factor.
inline constexpr float kF8Unit = 256;
// Codes 0 and 2 of a word, or 1 and 3, as two halves.
GPU_FN uint32_t F8Halves(int word, bool odd) {
  const uint32_t w = static_cast<uint32_t>(word) << (odd ? 0 : 8);
  return (w & 0x80008000u) | (w & 0x7f007f00u) >> 1;
}

template <QuantFormat kF>
GPU_FN QuantScales ScalesOf(const QuantWords& w, int b) {
  constexpr QuantScale kKind = kQuantSpec<kF>.scale;
  const int i = b & 7;
  QuantScales s;
  s.min[0] = s.min[1] = 0;
  if constexpr (kKind == QuantScale::kHalf || kKind == QuantScale::kHalfMin) {
    s.scale[0] = s.scale[1] = HalfOf(w.block);
    if (kKind == QuantScale::kHalfMin) s.min[0] = s.min[1] = HalfOf(w.block >> 16);
  } else if constexpr (kKind == QuantScale::kPower) {
    s.scale[0] = s.scale[1] = ::gpu::float_of(w.block << 23) * 0.5f;
  } else if constexpr (kKind == QuantScale::kFloat) {
    s.scale[0] = s.scale[1] = ::gpu::float_of(w.block) * kF8Unit;
  } else if constexpr (kKind == QuantScale::kSuperMin) {
    const uint32_t scale = (w.super[1] >> 4 * i & 15) | (w.super[3] >> 2 * i & 3) << 4;
    const uint32_t min = (w.super[2] >> 4 * i & 15) | (w.super[3] >> (16 + 2 * i) & 3) << 4;
    s.scale[0] = s.scale[1] = HalfOf(w.super[0]) * SmallFloat(scale);
    s.min[0] = s.min[1] = -HalfOf(w.super[0] >> 16) * SmallFloat(min);
  } else if constexpr (kKind == QuantScale::kSuper) {
    const uint32_t scale = (w.super[1] >> 4 * i & 15) | (w.super[0] >> (16 + 2 * i) & 3) << 4;
    s.scale[0] = s.scale[1] = HalfOf(w.super[0]) * SmallFloat(scale - 32);
  } else if constexpr (kKind == QuantScale::kPairs) {
    const float d = HalfOf(w.super[0]);
#pragma unroll
    for (int h = 0; h < 2; ++h)
      s.scale[h] = d * static_cast<float>(static_cast<int8_t>(w.block >> 8 * h));
  } else if constexpr (kKind == QuantScale::kPairsMin) {
    const float d = HalfOf(w.super[0]), dmin = -HalfOf(w.super[0] >> 16);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      s.scale[h] = d * SmallFloat(w.block >> 8 * h & 15);
      s.min[h] = dmin * SmallFloat(w.block >> (8 * h + 4) & 15);
    }
  } else {
    const float d = HalfOf(w.super[0]);
    // An index that is not known beforehand would put the words into memory.
    const uint32_t low = (i < 4 ? w.super[1] : w.super[2]) >> (i & 3) * 8;
    const uint32_t high = w.super[3] >> 4 * i;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const uint32_t scale = (low >> 4 * h & 15) | (high >> 2 * h & 3) << 4;
      s.scale[h] = d * SmallFloat(scale - 32);
    }
  }
  return s;
}

// The value of code j of the block, rounded once, as a reader of files gives it.
template <QuantFormat kF>
GPU_FN float ValueOf(const int (&codes)[8], const QuantScales& s, int j) {
  if constexpr (kQuantSpec<kF>.codes == QuantCodes::kF8) {
    const uint32_t halves = F8Halves(codes[j / 4], j % 2 != 0);
    return ::gpu::product(s.scale[0], HalfOf(halves >> j % 4 / 2 * 16));
  }
  const int code = static_cast<int8_t>(codes[j / 4] >> j % 4 * 8) - kQuantSpec<kF>.zero;
  const float v = ::gpu::product(s.scale[j / 16], static_cast<float>(code));
  return kQuantMin<kF> ? v + s.min[j / 16] : v;
}

// Whether codes are integers of few bits, and the device has arithmetic of pairs: two values at
// once are scale * (code - middle) + (min + scale * middle). Scale and the last term are rounded to
// T before, and so is the sum; the last term is 0 where codes have a zero. Of codes around their
// middle the sum is small where both terms are, so that what is rounded stays a part of the value.
template <QuantFormat kF>
inline constexpr bool kFewBits =
    kQuantSpec<kF>.codes ==
    QuantCodes::kIntegers&& kQuantSpec<kF>.low_bits + kQuantSpec<kF>.high_bits < 8;

template <QuantFormat kF, class T>
GPU_FN void WriteInPairs(const int (&codes)[8], const QuantScales& s, T* to) {
  constexpr QuantSpec kSpec = kQuantSpec<kF>;
  constexpr int kMiddle = kQuantMin<kF> ? 1 << (kSpec.low_bits + kSpec.high_bits - 1) : kSpec.zero;
  uint32_t scale[2], min[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    scale[h] = ::gpu::pack2(s.scale[h], s.scale[h], T{});
    const float m = kQuantMin<kF> ? s.min[h] + s.scale[h] * kMiddle : 0;
    min[h] = ::gpu::pack2(m, m, T{});
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    ::gpu::Pack<uint32_t> words;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const uint32_t pair =
          bytes2<kMiddle>(static_cast<uint32_t>(codes[2 * i + j / 2]), j % 2 != 0, T{});
      words.v[j] = fma2(pair, scale[i / 2], min[i / 2], T{});
    }
    *reinterpret_cast<::gpu::Pack<uint32_t>*>(to + 8 * i) = words;
  }
}

// The block's values as T, to a multiple of 16 bytes. Unless kExact, those of 2 bytes may be off by
// a few roundings.
template <QuantFormat kF, bool kExact, class T>
GPU_FN void WriteValues(const QuantWords& w, int b, T* to) {
  int codes[8];
  CodesOf<kF>(w, codes);
  const QuantScales s = ScalesOf<kF>(w, b);
  if constexpr (!kExact && kFewBits<kF> && ::gpu::kPairMath<T>)
    return WriteInPairs<kF>(codes, s, to);
  constexpr int kCount = ::gpu::Pack<T>::kCount;
#pragma unroll
  for (int i = 0; i < 32; i += kCount) {
    ::gpu::Pack<uint32_t> words;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if constexpr (sizeof(T) == 4) {
        words.v[j] = ::gpu::bits_of(ValueOf<kF>(codes, s, i + j));
      } else {
        words.v[j] = ::gpu::pack2(ValueOf<kF>(codes, s, i + 2 * j),
                                  ValueOf<kF>(codes, s, i + 2 * j + 1), T{});
      }
    }
    *reinterpret_cast<::gpu::Pack<uint32_t>*>(to + i) = words;
  }
}

template <QuantFormat kF>
struct QuantFormatTag {
  static constexpr QuantFormat kFormat = kF;
};
// f(a tag of the format): the same for all lanes of a wave. Unless kF8, nothing for 8-bit floats.
template <bool kF8 = true, class F>
GPU_FN void WithFormat(QuantFormat format, F f) {
  using enum QuantFormat;
  switch (format) {
    case kQ4_0:
      return f(QuantFormatTag<kQ4_0>());
    case kQ4_1:
      return f(QuantFormatTag<kQ4_1>());
    case kQ5_0:
      return f(QuantFormatTag<kQ5_0>());
    case kQ5_1:
      return f(QuantFormatTag<kQ5_1>());
    case kQ8_0:
      return f(QuantFormatTag<kQ8_0>());
    case kQ2_K:
      return f(QuantFormatTag<kQ2_K>());
    case kQ3_K:
      return f(QuantFormatTag<kQ3_K>());
    case kQ4_K:
      return f(QuantFormatTag<kQ4_K>());
    case kQ5_K:
      return f(QuantFormatTag<kQ5_K>());
    case kQ6_K:
      return f(QuantFormatTag<kQ6_K>());
    case kIQ4_NL:
      return f(QuantFormatTag<kIQ4_NL>());
    case kIQ4_XS:
      return f(QuantFormatTag<kIQ4_XS>());
    case kMXFP4:
      return f(QuantFormatTag<kMXFP4>());
    case kF8_32:
      if constexpr (kF8) f(QuantFormatTag<kF8_32>());
      return;
    case kPlain:
      return;
  }
}

// The same where a kernel knows which formats it will meet: f of the last for any but the others.
template <QuantFormat... kFormats>
struct QuantSet {};
template <QuantFormat kFirst, QuantFormat... kMore, class F>
GPU_FN void WithFormat(QuantSet<kFirst, kMore...>, QuantFormat format, F f) {
  if constexpr (sizeof...(kMore) == 0) {
    f(QuantFormatTag<kFirst>());
  } else if (format == kFirst) {
    f(QuantFormatTag<kFirst>());
  } else {
    WithFormat(QuantSet<kMore...>(), format, f);
  }
}

GPU_FN void StoreValue(const Rows& rows, ValueType type, int row, int column, float v) {
  switch (type) {
    case ValueType::kF32:
      RowOf<float>(rows, row)[column] = v;
      break;
    case ValueType::kBF16:
      RowOf<::gpu::bf16>(rows, row)[column] = ::gpu::to_bf16(v);
      break;
    case ValueType::kF16:
      RowOf<::gpu::f16>(rows, row)[column] = ::gpu::to_f16(v);
      break;
  }
}
GPU_FN const void* AddressOf(const Rows& rows, ValueType type, int row, int column) {
  if (type == ValueType::kF32) return RowOf<const float>(rows, row) + column;
  return RowOf<const uint16_t>(rows, row) + column;
}
GPU_FN float LoadAt(const void* p, ValueType type) {
  switch (type) {
    case ValueType::kBF16:
      return ::gpu::to_float(*static_cast<const ::gpu::bf16*>(p));
    case ValueType::kF16:
      return ::gpu::to_float(*static_cast<const ::gpu::f16*>(p));
    default:
      return *static_cast<const float*>(p);
  }
}

}  // namespace vt::gpu
