#include "vt/gpu/quant_layout.h"

#include <cstring>

#include "base/strings.h"
#include "vt/ir/quant_blocks.h"
#include "vt/ir/quant_codes.h"

namespace vt::gpu {
namespace {

using ir::DType;

constexpr int64_t RoundUp(int64_t n) { return (n + 15) / 16 * 16; }

const QuantSpec& SpecOf(QuantFormat f) { return kQuantSpecs[static_cast<size_t>(f)]; }

std::array<int, 4> PlaneBytes(const QuantSpec& s) {  // a block; the last one a superblock
  return {4 * s.low_bits, 4 * s.high_bits, s.block, s.super};
}

// Two bits a code of four words each.
uint32_t PackTwos(const uint32_t* codes, int shift) {
  uint32_t w = 0;
  for (int j = 0; j < 4; ++j) w |= (codes[j] >> shift & 0x03030303) << 2 * j;
  return w;
}

void PackCodes(const QuantSpec& s, const uint32_t (&codes)[8], std::byte* low, std::byte* high) {
  uint32_t w[8];
  for (int j = 0; j < s.low_bits; ++j) {
    if (s.low_bits == 8) {
      w[j] = codes[j];
    } else if (s.low_bits == 4) {
      w[j] = (codes[j] & 0x0f0f0f0f) | (codes[j + 4] & 0x0f0f0f0f) << 4;
    } else {
      w[j] = PackTwos(codes + 4 * j, 0);
    }
  }
  std::memcpy(low, w, static_cast<size_t>(4 * s.low_bits));
  if (s.high_bits == 1) {
    w[0] = 0;
    for (int j = 0; j < 8; ++j) w[0] |= (codes[j] >> s.low_bits & 0x01010101) << j;
  } else if (s.high_bits == 2) {
    for (int j = 0; j < 2; ++j) w[j] = PackTwos(codes + 4 * j, s.low_bits);
  }
  std::memcpy(high, w, static_cast<size_t>(4 * s.high_bits));
}

// The scales of a block of 32, or of a superblock: its parts of the planes.
void PackScales(DType t, const uint8_t* p, std::byte* block, std::byte* super) {
  using enum DType;
  uint32_t w[4] = {};
  switch (t) {
    case kQ4_0:
    case kQ5_0:
    case kQ8_0:
    case kIQ4_NL:
      std::memcpy(block, p, 2);
      return;
    case kMXFP4:
      std::memcpy(block, p, 1);
      return;
    case kQ4_1:
    case kQ5_1:
    case kF8_32:
      std::memcpy(block, p, 4);
      return;
    case kQ2_K:
      std::memcpy(block, p, 16);
      std::memcpy(super, p + 80, 4);
      return;
    case kQ6_K:
      std::memcpy(block, p + 192, 16);
      std::memcpy(super, p + 208, 2);
      return;
    case kQ4_K:
    case kQ5_K:
      std::memcpy(w, p, 4);
      for (int i = 0; i < 8; ++i) {
        const ir::ScaleMin s = ir::KScaleMin(p + 4, i);
        const auto scale = static_cast<uint32_t>(s.scale), min = static_cast<uint32_t>(s.min);
        w[1] |= (scale & 15) << 4 * i;
        w[2] |= (min & 15) << 4 * i;
        w[3] |= scale >> 4 << 2 * i | min >> 4 << (16 + 2 * i);
      }
      break;
    case kQ3_K:
      std::memcpy(w, p + 108, 2);
      for (int i = 0; i < 16; ++i) {
        const auto scale = static_cast<uint32_t>(ir::Q3KScale(p + 96, i) + 32);
        w[1 + i / 8] |= (scale & 15) << 4 * (i % 8);
        w[3] |= scale >> 4 << 2 * i;
      }
      break;
    case kIQ4_XS:  // as stored
      std::memcpy(super, p, 8);
      return;
    default:
      return;
  }
  std::memcpy(super, w, 16);
}

}  // namespace

std::optional<QuantFormat> QuantFormatOf(DType t) {
  switch (t) {
    case DType::kQ4_0:
      return QuantFormat::kQ4_0;
    case DType::kQ4_1:
      return QuantFormat::kQ4_1;
    case DType::kQ5_0:
      return QuantFormat::kQ5_0;
    case DType::kQ5_1:
      return QuantFormat::kQ5_1;
    case DType::kQ8_0:
      return QuantFormat::kQ8_0;
    case DType::kQ2_K:
      return QuantFormat::kQ2_K;
    case DType::kQ3_K:
      return QuantFormat::kQ3_K;
    case DType::kQ4_K:
      return QuantFormat::kQ4_K;
    case DType::kQ5_K:
      return QuantFormat::kQ5_K;
    case DType::kQ6_K:
      return QuantFormat::kQ6_K;
    case DType::kIQ4_NL:
      return QuantFormat::kIQ4_NL;
    case DType::kIQ4_XS:
      return QuantFormat::kIQ4_XS;
    case DType::kMXFP4:
      return QuantFormat::kMXFP4;
    case DType::kF8_32:
      return QuantFormat::kF8_32;
    default:
      return std::nullopt;
  }
}

std::string QuantLayoutName(DType t) { return fmt::format("gpu.{}", ir::Name(t)); }

QuantLayout QuantLayout::Of(QuantFormat format, int64_t rows, int64_t columns) {
  const std::array<int, 4> bytes = PlaneBytes(SpecOf(format));
  QuantLayout l;
  for (size_t i = 0; i < 4; ++i) {
    l.planes[i] = {l.bytes, columns / (i < 3 ? 32 : 256) * bytes[i]};
    l.bytes += RoundUp(rows * l.planes[i].row_bytes);
  }
  return l;
}

QuantPlanes QuantLayout::At(const void* data) const {
  const char* p = static_cast<const char*>(data);
  return {p + planes[0].offset, p + planes[1].offset, p + planes[2].offset, p + planes[3].offset};
}

void RepackQuantRow(const WeightView& src, int64_t row, const std::array<std::byte*, 4>& planes) {
  const QuantSpec& spec = SpecOf(*QuantFormatOf(src.format));
  const std::array<int, 4> bytes = PlaneBytes(spec);
  const ir::DTypeInfo& info = ir::Info(src.format);
  const auto* p =
      reinterpret_cast<const uint8_t*>(src.data) + row * ir::Bytes(src.format, src.columns);
  auto [low, high, block, super] = planes;
  const int blocks = info.block / 32;
  for (int64_t k = 0; k < src.columns; k += info.block, p += info.bytes) {
    PackScales(src.format, p, block, super);
    block += blocks * bytes[2];
    super += bytes[3];
    for (int i = 0; i < blocks; ++i, low += bytes[0], high += bytes[1]) {
      uint32_t codes[8];
      ir::BlockCodes(src.format, p, i, codes);
      PackCodes(spec, codes, low, high);
    }
  }
}

}  // namespace vt::gpu
