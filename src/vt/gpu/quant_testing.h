// What tests of quantised kernels share: matrices as files and as devices hold them, activations.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "vt/gpu/args_experts.h"
#include "vt/gpu/emulated/launch.h"
#include "vt/gpu/kernel_testing.h"
#include "vt/gpu/quant_layout.h"
#include "vt/gpu/quant_plan.h"
#include "vt/ir/quant.h"

namespace vt::gpu::quant_testing {

using ir::DType;
using kernel_testing::RunKernel;

// Memory that starts as a device's does: aligned, and of finite values that nobody wrote.
struct Memory {
  explicit Memory(int64_t bytes) : bytes(static_cast<size_t>(bytes + 255), std::byte{0x5b}) {}
  std::byte* data() {
    return bytes.data() + (256 - reinterpret_cast<uintptr_t>(bytes.data()) % 256) % 256;
  }
  std::vector<std::byte> bytes;
};

// Any bits, but for the scales: those are small numbers, of both signs where a format has signs.
struct Stored {
  Stored(DType format, int64_t rows, int64_t columns, uint32_t seed)
      : format(format), rows(rows), columns(columns) {
    std::mt19937 random(seed);
    blocks.resize(static_cast<size_t>(rows * ir::Bytes(format, columns)));
    for (uint8_t& b : blocks) b = static_cast<uint8_t>(random());
    const auto bytes = static_cast<size_t>(ir::Info(format).bytes);
    for (size_t at = 0; at < blocks.size(); at += bytes) {
      if (format == DType::kMXFP4) {
        blocks[at] = static_cast<uint8_t>(115 + random() % 8);
        continue;
      }
      if (format == DType::kF8_32) {
        const float size = std::ldexp(1 + static_cast<float>(random() % 1000) / 1000, -8);
        std::memcpy(&blocks[at], &size, 4);
        for (size_t i = at + 4; i < at + 36; ++i) blocks[i] -= (blocks[i] & 0x7f) == 0x7f;  // NaN
        continue;
      }
      for (const size_t half : Halves(format)) {
        const float size = std::ldexp(1 + static_cast<float>(random() % 1000) / 1000, -8);
        const uint16_t h = ir::FloatToHalf(random() % 2 == 0 ? size : -size);
        std::memcpy(&blocks[at + half], &h, 2);
      }
    }
    values.resize(static_cast<size_t>(rows * columns));
    ir::Dequantize(format, blocks.data(), values.data(), rows * columns);
  }
  static std::vector<size_t> Halves(DType t) {
    switch (t) {
      case DType::kQ4_1:
      case DType::kQ5_1:
      case DType::kQ4_K:
      case DType::kQ5_K:
        return {0, 2};
      case DType::kQ2_K:
        return {80, 82};
      case DType::kQ3_K:
        return {108};
      case DType::kQ6_K:
        return {208};
      default:
        return {0};
    }
  }
  DType format;
  int64_t rows, columns;
  std::vector<uint8_t> blocks;
  std::vector<float> values;
};

// As Repack leaves it on the device.
struct Held {
  explicit Held(const Stored& s)
      : layout(QuantLayout::Of(*QuantFormatOf(s.format), s.rows, s.columns)), memory(layout.bytes) {
    const WeightView view{reinterpret_cast<const std::byte*>(s.blocks.data()), s.format, s.rows,
                          s.columns};
    for (int64_t r = 0; r < s.rows; ++r) {
      std::array<std::byte*, 4> to;
      for (size_t p = 0; p < 4; ++p)
        to[p] = memory.data() + layout.planes[p].offset + r * layout.planes[p].row_bytes;
      RepackQuantRow(view, r, to);
    }
    matrix.planes = layout.At(memory.data());
    matrix.format = *QuantFormatOf(s.format);
    matrix.rows = static_cast<int32_t>(s.rows);
  }
  QuantLayout layout;
  Memory memory;
  QuantMatrix matrix;
};

// Rows of x as blocks of int8.
struct Activation {
  Activation(int64_t rows, int64_t k, uint32_t seed)
      : rows(rows), k(k), memory(rows * k / 32 * 40) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    plain.resize(static_cast<size_t>(rows * k));
    for (float& f : plain) f = normal(random);
    std::fill_n(plain.begin(), 32, 0.0f);  // a block of zeros has no scale
    values = plain;
    std::vector<ir::BlockQ8A32> blocks(static_cast<size_t>(rows * k / 32));
    ir::Quantize(DType::kQ8_A32, plain.data(), blocks.data(), rows * k);
    ir::Dequantize(DType::kQ8_A32, blocks.data(), values.data(), rows * k);
    for (size_t b = 0; b < blocks.size(); ++b) {
      std::memcpy(view().codes + 32 * b, blocks[b].q, 32);
      view().sums[b] = {blocks[b].d, {blocks[b].sum[0], blocks[b].sum[1]}};
    }
  }
  QuantRows view() {
    QuantRows v;
    v.codes = reinterpret_cast<int8_t*>(memory.data());
    v.sums = reinterpret_cast<QuantSum*>(memory.data() + rows * k);
    v.most_rows = static_cast<int32_t>(rows);
    v.blocks = static_cast<int32_t>(k / 32);
    return v;
  }
  int64_t rows, k;
  std::vector<float> plain, values;
  Memory memory;
};

inline double Dot(const std::vector<float>& x, int64_t i, const std::vector<float>& w, int64_t j,
                  int64_t k) {
  double sum = 0;
  for (int64_t n = 0; n < k; ++n)
    sum +=
        static_cast<double>(x[static_cast<size_t>(i * k + n)]) * w[static_cast<size_t>(j * k + n)];
  return sum;
}

inline Rows RowsAt(std::vector<float>& v, int64_t width) {
  return {v.data(), width, 1, static_cast<int32_t>(width)};
}
inline Header Tokens(int tokens) { return {tokens, 1, 1, 1}; }
inline Count PerToken() { return {Of::kTokens, 1}; }

}  // namespace vt::gpu::quant_testing
