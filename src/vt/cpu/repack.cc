#include "vt/cpu/repack.h"

#include <algorithm>
#include <cstring>

#include "vt/cpu/formats.h"
#include "vt/ir/quant_codes.h"

namespace vt::cpu {
namespace {

using ir::DType;

inline uint16_t Short(const uint8_t* p) {
  uint16_t w;
  std::memcpy(&w, p, 2);
  return w;
}

// A superblock's header, as this row's column of the panel's header: entry e of a byte plane is at
// h[e * nr].
void Header(DType t, const uint8_t* p, int nr, int row, uint8_t* h) {
  using enum DType;
  const auto half = [&](int slot, uint16_t v) { std::memcpy(h + 2 * (slot * nr + row), &v, 2); };
  const auto byte = [&](int plane, uint8_t v) { h[plane * nr + row] = v; };
  switch (t) {
    case kQ4_0:
    case kQ5_0:
    case kQ8_0:
    case kIQ4_NL:
      return half(0, Short(p));
    case kMXFP4:
      return byte(0, p[0]);
    case kQ4_1:
    case kQ5_1:
      half(0, Short(p));
      return half(1, Short(p + 2));
    case kQ2_K:
      half(0, Short(p + 80));
      half(1, Short(p + 82));
      for (int i = 0; i < 16; ++i) byte(4 + i, p[i]);
      return;
    case kQ3_K: {
      half(0, Short(p + 108));
      const uint8_t* s = p + 96;
      for (int i = 0; i < 16; ++i) {
        const int low = i < 8 ? s[i] & 15 : s[i - 8] >> 4;
        const int high = s[8 + i % 4] >> 2 * (i / 4) & 3;
        byte(2 + i, static_cast<uint8_t>((low | high << 4) - 32));
      }
      return;
    }
    case kQ4_K:
    case kQ5_K: {
      half(0, Short(p));
      half(1, Short(p + 2));
      const uint8_t* s = p + 4;
      for (int i = 0; i < 4; ++i) {
        byte(4 + i, s[i] & 63);
        byte(12 + i, s[i + 4] & 63);
        byte(8 + i, static_cast<uint8_t>((s[i + 8] & 15) | s[i] >> 6 << 4));
        byte(16 + i, static_cast<uint8_t>(s[i + 8] >> 4 | s[i + 4] >> 6 << 4));
      }
      return;
    }
    case kQ6_K:
      half(0, Short(p + 208));
      for (int i = 0; i < 16; ++i) byte(2 + i, p[192 + i]);
      return;
    case kIQ4_XS: {
      half(0, Short(p));
      const int high = Short(p + 2);
      for (int i = 0; i < 8; ++i) {
        const int low = p[4 + i / 2] >> 4 * (i % 2) & 15;
        byte(2 + i, static_cast<uint8_t>((low | (high >> 2 * i & 3) << 4) - 32));
      }
      return;
    }
    default:
      return;
  }
}

// Words of one row's codes into the bit planes; word w of the block stands at out[w * nr].
void StorePlanes(const FormatSpec& s, const uint32_t c[8], int nr, uint32_t* out) {
  if (s.low_bits == 8) {
    for (int j = 0; j < 8; ++j) out[j * nr] = c[j];
  } else if (s.low_bits == 4) {
    for (int j = 0; j < 4; ++j) out[j * nr] = (c[j] & 0x0f0f0f0f) | (c[j + 4] & 0x0f0f0f0f) << 4;
  } else {
    for (int v = 0; v < 2; ++v) {
      uint32_t w = 0;
      for (int j = 0; j < 4; ++j) w |= (c[4 * v + j] & 0x03030303) << 2 * j;
      out[v * nr] = w;
    }
  }
  out += LowWords(s) * nr;
  if (s.high_bits == 1) {
    uint32_t w = 0;
    for (int j = 0; j < 8; ++j) w |= (c[j] >> s.low_bits & 0x01010101) << j;
    out[0] = w;
  } else if (s.high_bits == 2) {
    for (int v = 0; v < 2; ++v) {
      uint32_t w = 0;
      for (int j = 0; j < 4; ++j) w |= (c[4 * v + j] >> s.low_bits & 0x03030303) << 2 * j;
      out[v * nr] = w;
    }
  }
}

void RepackQuantised(const WeightView& src, int nr, int64_t panel, uint8_t* dst) {
  const FormatSpec s = SpecOf(src.format);
  const int64_t row_bytes = ir::Bytes(src.format, src.columns);
  const int block_bytes = ir::Info(src.format).bytes;
  const int header = HeaderBytesPerRow(s) * nr, codes = CodeWords(s) * 4 * nr;
  const int64_t step = header + s.super * codes;
  for (int r = 0; r < nr && panel * nr + r < src.rows; ++r) {
    const uint8_t* p = reinterpret_cast<const uint8_t*>(src.data) + (panel * nr + r) * row_bytes;
    uint8_t* out = dst;
    for (int64_t b = 0; b < src.columns / (32 * s.super); ++b, p += block_bytes, out += step) {
      Header(src.format, p, nr, r, out);
      for (int i = 0; i < s.super; ++i) {
        uint32_t c[8];
        ir::BlockCodes(src.format, p, i, c);
        StorePlanes(s, c, nr, reinterpret_cast<uint32_t*>(out + header + i * codes) + r);
      }
    }
  }
}

void RepackF8(const WeightView& src, int nr, int64_t panel, std::byte* dst) {
  const int64_t row_bytes = ir::Bytes(src.format, src.columns);
  for (int64_t r = 0; r < nr && panel * nr + r < src.rows; ++r) {
    const std::byte* p = src.data + (panel * nr + r) * row_bytes;
    std::byte* out = dst;
    for (int64_t b = 0; b < src.columns / 32; ++b, p += 36, out += F8PanelBytes(nr, 32)) {
      std::memcpy(out + 4 * r, p, 4);
      for (int k = 0; k < 32; ++k) out[(4 + k) * nr + r] = p[4 + k];
    }
  }
}

template <typename W>
void RepackPlain(const WeightView& src, int nr, int64_t panel, std::byte* dst) {
  const int64_t first = panel * nr, rows = std::min<int64_t>(nr, src.rows - first);
  W* out = reinterpret_cast<W*>(dst);
  for (int64_t r = 0; r < rows; ++r) {
    const std::byte* p = src.data + (first + r) * src.columns * static_cast<int64_t>(sizeof(W));
    for (int64_t k = 0; k < src.columns; ++k)
      std::memcpy(out + k * nr + r, p + k * sizeof(W), sizeof(W));
  }
}

// Two values of a row side by side; of an odd k the last has a zero beside it.
void RepackPairs(const WeightView& src, int nr, int64_t panel, std::byte* dst) {
  const int64_t first = panel * nr, rows = std::min<int64_t>(nr, src.rows - first);
  if (src.columns % 2 != 0)
    std::memset(dst + (src.columns - 1) * 2 * nr, 0, 4 * static_cast<size_t>(nr));
  for (int64_t r = 0; r < rows; ++r) {
    const std::byte* p = src.data + (first + r) * src.columns * 2;
    for (int64_t k = 0; k < src.columns; ++k)
      std::memcpy(dst + 4 * (k / 2 * nr + r) + k % 2 * 2, p + 2 * k, 2);
  }
}

}  // namespace

int64_t PanelBytesOf(DType format, int nr, bool pairs, int64_t k) {
  if (format == DType::kBF16 && pairs) return 2 * nr * (k + k % 2);
  if (format == DType::kF32) return 4 * nr * k;
  if (format == DType::kF16 || format == DType::kBF16) return 2 * nr * k;
  if (format == DType::kF8_32) return k % 32 == 0 ? F8PanelBytes(nr, k) : 0;
  const FormatSpec s = SpecOf(format);
  if (s.low_bits == 0 || k % ir::Info(format).block != 0) return 0;
  return PanelBytes(s, nr, k);
}

void RepackPanels(const WeightView& src, int nr, bool pairs, int64_t begin, int64_t end,
                  std::byte* dst) {
  const int64_t bytes = PanelBytesOf(src.format, nr, pairs, src.columns);
  for (int64_t p = begin; p < end; ++p) {
    std::byte* out = dst + p * bytes;
    if ((p + 1) * nr > src.rows) std::memset(out, 0, static_cast<size_t>(bytes));
    switch (src.format) {
      case DType::kF32:
        RepackPlain<uint32_t>(src, nr, p, out);
        break;
      case DType::kF16:
      case DType::kBF16:
        if (pairs && src.format == DType::kBF16) {
          RepackPairs(src, nr, p, out);
          break;
        }
        RepackPlain<uint16_t>(src, nr, p, out);
        break;
      case DType::kF8_32:
        RepackF8(src, nr, p, out);
        break;
      default:
        RepackQuantised(src, nr, p, reinterpret_cast<uint8_t*>(out));
    }
  }
}

}  // namespace vt::cpu
