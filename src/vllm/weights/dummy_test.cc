#include "vllm/weights/dummy.h"

#include <gtest/gtest.h>

#include <cmath>

#include "vt/ir/quant.h"

namespace vllm::weights {
namespace {

using vt::ir::DType;

std::vector<float> Values(DType type, std::string_view name, uint64_t seed, int64_t count,
                          float mean = 0) {
  std::vector<std::byte> bytes(static_cast<size_t>(vt::ir::Bytes(type, count)));
  FillRandom(name, seed, type, mean, bytes);
  std::vector<float> out(static_cast<size_t>(count));
  vt::ir::Dequantize(type, bytes.data(), out.data(), count);
  return out;
}

// 16,384 values: the mean's standard error is 0.02 / 128 = 1.6e-4, times the spread of block
// scales; the deviation is a rough fit of each format, so it may be off by a quarter.
TEST(Dummy, EveryFormatHasMeanZeroAndTheInitializersDeviation) {
  for (const DType type :
       {DType::kF32, DType::kF16, DType::kBF16, DType::kQ4_0, DType::kQ4_1, DType::kQ5_0,
        DType::kQ5_1, DType::kQ8_0, DType::kQ2_K, DType::kQ3_K, DType::kQ4_K, DType::kQ5_K,
        DType::kQ6_K, DType::kIQ4_NL, DType::kIQ4_XS, DType::kMXFP4}) {
    const std::vector<float> v = Values(type, "w", 0, 16384);
    double sum = 0, squares = 0;
    for (const float f : v) {
      ASSERT_TRUE(std::isfinite(f)) << vt::ir::Name(type);
      sum += f;
      squares += static_cast<double>(f) * f;
    }
    const double mean = sum / 16384, deviation = std::sqrt(squares / 16384 - mean * mean);
    EXPECT_NEAR(mean, 0, 0.003) << vt::ir::Name(type);
    EXPECT_NEAR(deviation, 0.02, 0.005) << vt::ir::Name(type);
  }
}

TEST(Dummy, TheSameNameAndSeedGiveTheSameWeights) {
  EXPECT_EQ(Values(DType::kQ4_K, "a", 1, 512), Values(DType::kQ4_K, "a", 1, 512));
  EXPECT_NE(Values(DType::kQ4_K, "a", 1, 512), Values(DType::kQ4_K, "b", 1, 512));
  EXPECT_NE(Values(DType::kQ4_K, "a", 1, 512), Values(DType::kQ4_K, "a", 2, 512));
}

TEST(Dummy, NormWeightsAreAboutTheirMean) {
  for (const float f : Values(DType::kBF16, "norm", 0, 256, 1)) EXPECT_NEAR(f, 1, 0.1);
}

}  // namespace
}  // namespace vllm::weights
