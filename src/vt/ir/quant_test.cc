#include "vt/ir/quant.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <vector>

namespace vt::ir {
namespace {

std::string ReadGolden(const std::string& name) {
  std::ifstream file(std::string(VLLM_SOURCE_DIR) + "/tests/goldens/quant/" + name,
                     std::ios::binary);
  EXPECT_TRUE(file) << name;
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

class Format : public testing::TestWithParam<DType> {};

void ExpectValuesOfTheGgufPackage(DType t) {
  const std::string blocks = ReadGolden(std::string(Name(t)) + ".blocks");
  const std::string values = ReadGolden(std::string(Name(t)) + ".f32");
  std::vector<float> want(values.size() / 4);
  std::memcpy(want.data(), values.data(), values.size());
  ASSERT_EQ(Bytes(t, static_cast<int64_t>(want.size())), static_cast<int64_t>(blocks.size()));
  std::vector<float> got(want.size());
  Dequantize(t, blocks.data(), got.data(), static_cast<int64_t>(got.size()));
  float largest = 0;
  for (const float w : want) largest = std::max(largest, std::fabs(w));
  ASSERT_GT(largest, 0);
  // Products are the same; the order of (d * scale) * q may differ by a rounding each.
  for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got[i], want[i], 3e-7f * largest) << i;
}
TEST_P(Format, DequantizesLikeTheGgufPackage) { ExpectValuesOfTheGgufPackage(GetParam()); }

// Root mean square error of a unit normal, relative; about 1 / (code steps in 6 sigma) / sqrt(12),
// with room for the rounding of scales.
float ErrorBound(DType t) {
  switch (t) {
    case DType::kQ2_K:
      return 0.33f;
    case DType::kQ3_K:
      return 0.18f;
    case DType::kQ4_0:
    case DType::kQ4_1:
    case DType::kQ4_K:
    case DType::kIQ4_NL:
    case DType::kIQ4_XS:
      return 0.10f;
    case DType::kQ5_0:
    case DType::kQ5_1:
    case DType::kQ5_K:
      return 0.05f;
    case DType::kQ6_K:
      return 0.025f;
    default:
      return 0.007f;  // 8 bits
  }
}

TEST_P(Format, QuantizesANormalVectorWithinTheFormatsResolution) {
  const DType t = GetParam();
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  std::vector<float> x(256 * 64), y(x.size());
  for (float& v : x) v = normal(random);
  std::vector<std::byte> blocks(static_cast<size_t>(Bytes(t, static_cast<int64_t>(x.size()))));
  Quantize(t, x.data(), blocks.data(), static_cast<int64_t>(x.size()));
  Dequantize(t, blocks.data(), y.data(), static_cast<int64_t>(x.size()));
  double error = 0, norm = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    error += (x[i] - y[i]) * (x[i] - y[i]);
    norm += x[i] * x[i];
  }
  const double relative = std::sqrt(error / norm);
  RecordProperty("relative_error", std::to_string(relative));
  EXPECT_LT(relative, ErrorBound(t));
  EXPECT_GT(relative, 0);
}

// Root mean square errors, relative, of llama.cpp's ggml_quantize_chunk (0.25.3 of ggml, without an
// importance matrix) on Skewed() in rows of 1,024 values.
double ErrorOfLlamaCpp(DType t) {
  switch (t) {
    case DType::kQ4_0:
      return 0.097310;
    case DType::kQ4_1:
      return 0.086573;
    case DType::kQ5_0:
      return 0.048389;
    case DType::kQ5_1:
      return 0.041852;
    case DType::kQ8_0:
      return 0.006074;
    case DType::kQ2_K:
      return 0.328039;
    case DType::kQ3_K:
      return 0.167352;
    case DType::kQ4_K:
      return 0.079371;
    case DType::kQ5_K:
      return 0.040193;
    case DType::kQ6_K:
      return 0.020014;
    case DType::kIQ4_NL:
      return 0.082087;
    case DType::kIQ4_XS:
      return 0.082697;
    default:
      return 0;
  }
}

// Values about normal, four sizes of them mixed, exact on every machine.
std::vector<float> Skewed() {
  std::vector<float> x(256 * 512);
  uint32_t state = 1;
  for (float& v : x) {
    int sum = 0;
    for (int k = 0; k < 4; ++k) {
      state = state * 1664525u + 1013904223u;
      sum += static_cast<int>(state >> 22) - 512;
    }
    v = static_cast<float>(sum * (1 + static_cast<int>((state >> 12) % 4))) / 16384;
  }
  return x;
}

TEST_P(Format, QuantizesAsWellAsLlamaCpp) {
  const DType t = GetParam();
  const std::vector<float> x = Skewed();
  const auto n = static_cast<int64_t>(x.size());
  std::vector<float> y(x.size());
  std::vector<std::byte> blocks(static_cast<size_t>(Bytes(t, n)));
  Quantize(t, x.data(), blocks.data(), n);
  Dequantize(t, blocks.data(), y.data(), n);
  double error = 0, norm = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    error += (x[i] - y[i]) * (x[i] - y[i]);
    norm += x[i] * x[i];
  }
  // Codes of equal error differ; 0.1% is what that makes of it.
  EXPECT_NEAR(std::sqrt(error / norm) / ErrorOfLlamaCpp(t), 1, 1e-3);
}

// Scales come from sums of third powers, which must not leave the range of a float.
TEST_P(Format, QuantizesSmallAndLargeValuesAlike) {
  const DType t = GetParam();
  std::vector<float> x = Skewed();
  x.resize(1024);
  std::vector<std::byte> blocks(static_cast<size_t>(Bytes(t, 1024)));
  for (const float size : {0.01f, 1000.0f}) {
    std::vector<float> scaled = x, y(x.size());
    for (float& v : scaled) v *= size;
    Quantize(t, scaled.data(), blocks.data(), 1024);
    Dequantize(t, blocks.data(), y.data(), 1024);
    double error = 0, norm = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      error += (scaled[i] - y[i]) * (scaled[i] - y[i]);
      norm += scaled[i] * scaled[i];
    }
    // Small scales are rounded as halves.
    EXPECT_LT(std::sqrt(error / norm), 1.1 * ErrorOfLlamaCpp(t) + 0.002) << size;
  }
}

TEST_P(Format, QuantizesWhatIsNoNumberWithoutHarm) {
  const DType t = GetParam();
  for (const float bad : {NAN, INFINITY, -INFINITY, 3e38f}) {
    std::vector<float> x(256, 1.0f), y(256);
    x[7] = bad;
    x[200] = -bad;
    std::vector<std::byte> blocks(static_cast<size_t>(Bytes(t, 256)));
    Quantize(t, x.data(), blocks.data(), 256);
    Dequantize(t, blocks.data(), y.data(), 256);
  }
}

TEST_P(Format, QuantizesZerosAndConstants) {
  const DType t = GetParam();
  for (const float c : {0.0f, 1.0f, -2.5f}) {
    std::vector<float> x(256, c), y(256, 99);
    std::vector<std::byte> blocks(static_cast<size_t>(Bytes(t, 256)));
    Quantize(t, x.data(), blocks.data(), 256);
    Dequantize(t, blocks.data(), y.data(), 256);
    for (const float v : y) ASSERT_NEAR(v, c, 0.04f * std::fabs(c)) << Name(t);
  }
}

INSTANTIATE_TEST_SUITE_P(Stored, Format,
                         testing::Values(DType::kQ4_0, DType::kQ4_1, DType::kQ5_0, DType::kQ5_1,
                                         DType::kQ8_0, DType::kQ2_K, DType::kQ3_K, DType::kQ4_K,
                                         DType::kQ5_K, DType::kQ6_K, DType::kIQ4_NL,
                                         DType::kIQ4_XS),
                         [](const auto& info) { return std::string(Name(info.param)); });

// Values that share a power of two: nothing between 2 and 3, so constants are not kept.
TEST(MXFP4, DequantizesLikeTheGgufPackage) { ExpectValuesOfTheGgufPackage(DType::kMXFP4); }

TEST(MXFP4, ExponentsReachFromTheSmallestFloatToTheLargest) {
  uint8_t block[17] = {};
  for (uint8_t& b : block) b = 0x22;  // codes of 1
  for (const int e : {0, 1, 2, 127, 254}) {
    block[0] = static_cast<uint8_t>(e);
    float y[32];
    Dequantize(DType::kMXFP4, block, y, 32);
    EXPECT_EQ(y[31], std::ldexp(1.0f, e - 127)) << e;
  }
  block[0] = 255;
  float y[32];
  Dequantize(DType::kMXFP4, block, y, 32);
  EXPECT_TRUE(std::isnan(y[0]));
}

TEST(MXFP4, WhatItHoldsComesBackAndTheRestIsNear) {
  std::mt19937 random(6);
  std::normal_distribution<float> normal;
  std::vector<float> x(4096), y(x.size());
  for (float& v : x) v = 3e-3f * normal(random);
  std::vector<std::byte> blocks(static_cast<size_t>(Bytes(DType::kMXFP4, 4096)));
  Quantize(DType::kMXFP4, x.data(), blocks.data(), 4096);
  Dequantize(DType::kMXFP4, blocks.data(), y.data(), 4096);
  double error = 0, norm = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    error += (x[i] - y[i]) * (x[i] - y[i]);
    norm += x[i] * x[i];
  }
  // The standard's rule for the exponent alone gives 0.1175.
  EXPECT_LT(std::sqrt(error / norm), 0.115);
  std::vector<std::byte> again(blocks.size());
  std::vector<float> z(x.size());
  Quantize(DType::kMXFP4, y.data(), again.data(), 4096);
  Dequantize(DType::kMXFP4, again.data(), z.data(), 4096);
  EXPECT_EQ(y, z);
  for (const float bad : {NAN, INFINITY, 3e38f, 1e-44f}) {
    std::vector<float> v(32, bad);
    Quantize(DType::kMXFP4, v.data(), again.data(), 32);
  }
}

TEST(F8_32, IsItsScaleTimesItsCodes) {
  uint8_t block[36] = {};
  const float scale = 0.3f;
  std::memcpy(block, &scale, 4);
  float y[32], z[32];
  for (int first = 0; first < 256; first += 32) {
    for (int i = 0; i < 32; ++i) {
      const int code = first + i;
      block[4 + i] = static_cast<uint8_t>((code & 127) == 127 ? 126 : code);  // not NaN
    }
    Dequantize(DType::kF8_32, block, y, 32);
    for (int i = 0; i < 32; ++i) EXPECT_EQ(y[i], scale * F8ToFloat(block[4 + i]));
    uint8_t again[36];
    Quantize(DType::kF8_32, y, again, 32);
    Dequantize(DType::kF8_32, again, z, 32);
    for (int i = 0; i < 32; ++i) EXPECT_NEAR(y[i], z[i], 0.07f * std::fabs(y[i]) + 1e-4f);
  }
}

TEST(Half, EveryHalfSurvivesTheRoundTrip) {
  for (uint32_t h = 0; h < 0x10000; ++h) {
    const float f = HalfToFloat(static_cast<uint16_t>(h));
    if (std::isnan(f)) {
      EXPECT_TRUE(std::isnan(HalfToFloat(FloatToHalf(f))));
    } else {
      ASSERT_EQ(FloatToHalf(f), h);
    }
  }
}

TEST(Half, RoundsToNearestEven) {
  EXPECT_EQ(HalfToFloat(0x3c00), 1.0f);
  EXPECT_EQ(HalfToFloat(0x0001), std::ldexp(1.0f, -24));
  EXPECT_EQ(FloatToHalf(1.0f + std::ldexp(1.0f, -11)), 0x3c00);      // a tie: to even
  EXPECT_EQ(FloatToHalf(1.0f + 3 * std::ldexp(1.0f, -11)), 0x3c02);  // a tie: to even
  EXPECT_EQ(FloatToHalf(65519.0f), 0x7bff);
  EXPECT_EQ(FloatToHalf(65520.0f), 0x7c00);
  EXPECT_EQ(FloatToHalf(std::ldexp(1.0f, -25)), 0);
  EXPECT_EQ(FloatToHalf(std::ldexp(1.5f, -25)), 1);
  EXPECT_EQ(FloatToHalf(-0.0f), 0x8000);
}

TEST(BFloat, RoundsToNearestEvenAndKeepsNan) {
  EXPECT_EQ(FloatToBFloat(1.0f), 0x3f80);
  EXPECT_EQ(FloatToBFloat(1.0f + std::ldexp(1.0f, -8)), 0x3f80);
  EXPECT_EQ(FloatToBFloat(1.0f + 3 * std::ldexp(1.0f, -8)), 0x3f82);
  EXPECT_TRUE(std::isnan(BFloatToFloat(FloatToBFloat(NAN))));
  EXPECT_EQ(BFloatToFloat(FloatToBFloat(-INFINITY)), -INFINITY);
}

TEST(Q8A32, HoldsTheSumsOfEachHalf) {
  float x[32];
  for (int i = 0; i < 32; ++i) x[i] = static_cast<float>(i - 10);
  BlockQ8A32 b;
  Quantize(DType::kQ8_A32, x, &b, 32);
  EXPECT_FLOAT_EQ(b.d, 21.0f / 127);
  EXPECT_EQ(b.q[31], 127);
  EXPECT_EQ(b.q[10], 0);
  int sums[2] = {0, 0};
  for (int i = 0; i < 32; ++i) sums[i / 16] += b.q[i];
  EXPECT_EQ(b.sum[0], sums[0]);
  EXPECT_EQ(b.sum[1], sums[1]);
}

// Every code, and the middles between neighbours, which go to the even one.
TEST(Float8, RoundsToTheNearestAndTiesToEven) {
  for (int code = 0; code < 0x7f; ++code) {
    const float f = F8ToFloat(static_cast<uint8_t>(code));
    EXPECT_EQ(FloatToF8(f), code);
    EXPECT_EQ(FloatToF8(-f), code | 0x80);
    if (code == 0x7e) continue;
    const float next = F8ToFloat(static_cast<uint8_t>(code + 1));
    ASSERT_GT(next, f);
    const float middle = (f + next) / 2;
    EXPECT_EQ(FloatToF8(middle), code % 2 == 0 ? code : code + 1);
    EXPECT_EQ(FloatToF8(std::nextafter(middle, 0.0f)), code);
    EXPECT_EQ(FloatToF8(std::nextafter(middle, 1e9f)), code + 1);
  }
  EXPECT_EQ(F8ToFloat(0x7e), 448.0f);
  EXPECT_EQ(F8ToFloat(0x08), 0.015625f);
  EXPECT_EQ(F8ToFloat(0x01), 0.001953125f);
  EXPECT_EQ(FloatToF8(1e30f), 0x7e);
  EXPECT_EQ(FloatToF8(-INFINITY), 0xfe);
  EXPECT_TRUE(std::isnan(F8ToFloat(0x7f)));
  EXPECT_EQ(FloatToF8(NAN) & 0x7f, 0x7f);
}

}  // namespace
}  // namespace vt::ir
