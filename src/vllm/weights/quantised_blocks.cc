// From codes, scales and zeros as they are stored to blocks.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/strings.h"
#include "vllm/weights/quantised_tensors.h"
#include "vt/ir/quant.h"

namespace vllm::weights {
namespace {

using base::Code;
using base::Error;
using base::Status;
using vt::ir::DType;
using Order = QuantisedTensor::Order;
using Bytes = std::span<const std::byte>;

constexpr int64_t kRows = 8;  // that are read together: those of a word of AWQ
using Codes = uint8_t[kRows][32];

template <class T>
T At(Bytes bytes, int64_t index) {
  T v;
  std::memcpy(&v, bytes.data() + static_cast<size_t>(index) * sizeof v, sizeof v);
  return v;
}

// Where a word of AWQ has the code of row i of its eight.
constexpr int AwqPlace(int64_t row) {
  return static_cast<int>(row % 2 == 0 ? row % 8 / 2 : 4 + row % 8 / 2);
}

// Codes of values [k, k + 32) of rows [row, row + 8), as far as there are rows. REQUIRES: row is a
// multiple of 8.
void ReadCodes(const QuantisedTensor& t, Bytes data, int64_t row, int64_t k, Codes& codes) {
  const int64_t n = std::min(kRows, t.rows - row);
  const auto* p = reinterpret_cast<const uint8_t*>(data.data());
  if (t.order == Order::kAwq) {
    for (int64_t j = 0; j < 32; ++j) {
      const auto word = At<uint32_t>(data, (k + j) * (t.rows / 8) + row / 8);
      for (int64_t i = 0; i < n; ++i) codes[i][j] = word >> 4 * AwqPlace(i) & 15;
    }
    return;
  }
  const size_t bytes = static_cast<size_t>(4 * t.bits);  // of 32 codes
  for (int64_t i = 0; i < n; ++i) {
    uint8_t packed[32];
    if (t.order == Order::kRows) {
      std::memcpy(packed, p + ((row + i) * t.columns + k) * t.bits / 8, bytes);
    } else {
      for (int64_t w = 0; w < t.bits; ++w) {
        const auto word = At<uint32_t>(data, (k * t.bits / 32 + w) * t.rows + row + i);
        std::memcpy(packed + 4 * w, &word, 4);
      }
    }
    for (int j = 0; j < 32; ++j)
      codes[i][j] = (t.bits == 8 ? packed[j] : packed[j / 2] >> 4 * (j % 2) & 15) ^ t.flip;
  }
}

// The zero of a group of a row's values.
int ReadZero(const QuantisedTensor& t, Bytes zeros, int64_t row, int64_t group) {
  const int64_t each = 32 / t.bits, words = t.rows / each;
  const int64_t word =
      t.order == Order::kRows ? row / each * t.groups + group : group * words + row / each;
  const int64_t place = t.order == Order::kAwq ? AwqPlace(row) : row % each;
  const uint32_t mask = (1u << t.bits) - 1;
  const uint32_t zero = At<uint32_t>(zeros, word) >> t.bits * place & mask;
  return static_cast<int>(t.zeros_less_one ? (zero + 1) & mask : zero);
}

float ReadScale(const QuantisedTensor& t, Bytes scales, int64_t row, int64_t k) {
  const int64_t i = row / t.row_step * t.row_stride + k / t.step * t.stride;
  switch (t.scale_type) {
    case DType::kF32:
      return At<float>(scales, i);
    case DType::kBF16:
      return vt::ir::BFloatToFloat(At<uint16_t>(scales, i));
    case DType::kU8:
      return std::ldexp(1.0f, At<uint8_t>(scales, i) - 127);
    default:
      return vt::ir::HalfToFloat(At<uint16_t>(scales, i));
  }
}

uint8_t* PutHalf(uint8_t* out, float f) {
  const uint16_t h = vt::ir::FloatToHalf(f);
  std::memcpy(out, &h, 2);
  return out + 2;
}

void PutNibbles(uint8_t* out, const uint8_t (&codes)[32]) {
  for (int j = 0; j < 16; ++j) out[j] = static_cast<uint8_t>(codes[j] | codes[j + 16] << 4);
}

Error Bad(const QuantisedTensor& t, int64_t row, const std::string& what) {
  return {Code::kCorrupt, fmt::format("tensor '{}': row {}: {}", t.name, row, what)};
}

Status PutBlock(const QuantisedTensor& t, Bytes scales, Bytes zeros, int64_t row, int64_t k,
                const uint8_t (&codes)[32], uint8_t* out) {
  if (t.type == DType::kMXFP4) {
    out[0] = At<uint8_t>(scales, row / t.row_step * t.row_stride + k / t.step * t.stride);
    PutNibbles(out + 1, codes);
    return {};
  }
  const float scale = ReadScale(t, scales, row, k);
  const bool half = t.type != DType::kF8_32;
  if (!(std::fabs(scale) < (half ? 65520.0f : INFINITY)))
    return Bad(t, row,
               fmt::format("its scale {} is no number that {} holds", scale, half ? "f16" : "f32"));
  if (!half) {
    std::memcpy(out, &scale, 4);
    std::memcpy(out + 4, codes, 32);
    return {};
  }
  const int middle = t.bits == 8 ? 128 : 8;
  const int zero = t.has_zeros ? ReadZero(t, zeros, row, k / t.step) : middle;
  if (t.type != DType::kQ4_1 && zero != middle) {
    return Bad(
        t, row,
        fmt::format("its zero is {}, but quantization_config says that all are {}", zero, middle));
  }
  out = PutHalf(out, scale);
  if (t.type == DType::kQ4_1) {
    const float held = vt::ir::HalfToFloat(vt::ir::FloatToHalf(scale));
    out = PutHalf(out, -held * static_cast<float>(zero));
  }
  if (t.type == DType::kQ8_0) {
    std::memcpy(out, codes, 32);
  } else {
    PutNibbles(out, codes);
  }
  return {};
}

}  // namespace

Status MakeBlocks(const QuantisedTensor& t, const BytesOfPiece& bytes_of, int64_t first,
                  int64_t count, std::byte* out) {
  const Bytes data = bytes_of(t.codes), scales = bytes_of(t.scales);
  const Bytes zeros = t.has_zeros ? bytes_of(t.zeros) : Bytes();
  const int64_t block = vt::ir::Info(t.type).bytes, end = first + count;
  for (int64_t row = first / kRows * kRows; row < end; row += kRows) {
    for (int64_t k = 0; k < t.columns; k += 32) {
      Codes codes;
      ReadCodes(t, data, row, k, codes);
      for (int64_t r = std::max(row, first); r < std::min(row + kRows, end); ++r) {
        std::byte* to = out + (r - first) * t.RowBytes() + k / 32 * block;
        const Status status =
            PutBlock(t, scales, zeros, r, k, codes[r - row], reinterpret_cast<uint8_t*>(to));
        if (!status) return status;
      }
    }
  }
  return {};
}

}  // namespace vllm::weights
