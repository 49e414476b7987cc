// Mma of gpu.h against plain loops.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "vt/gpu/emulated/launch.h"
#include "vt/gpu/emulated/test_kernels.h"
#include "vt/ir/quant.h"

namespace vt::gpu::emulated {
namespace {

enum class Type { kF32, kBF16, kF16 };

// Values as the type has them: stored, and as f32.
struct Matrix {
  std::vector<char> stored;
  std::vector<float> values;
  const void* data() const { return stored.data(); }
};

float Rounded(float v, Type type, std::vector<char>* store) {
  const auto put = [&](auto bits) {
    const auto* p = reinterpret_cast<const char*>(&bits);
    if (store != nullptr) store->insert(store->end(), p, p + sizeof bits);
  };
  if (type == Type::kF32) {
    put(v);
    return v;
  }
  if (type == Type::kF16) {
    const uint16_t h = ir::FloatToHalf(v);
    put(h);
    return ir::HalfToFloat(h);
  }
  uint32_t u = 0;
  std::memcpy(&u, &v, 4);
  u = (u + 0x7fff + (u >> 16 & 1)) & 0xffff0000;
  put(static_cast<uint16_t>(u >> 16));
  std::memcpy(&v, &u, 4);
  return v;
}

// Values in (-1, 1), none alike.
Matrix Some(size_t n, Type type, uint32_t seed) {
  Matrix m;
  for (size_t i = 0; i < n; ++i) {
    seed = seed * 1664525 + 1013904223;
    m.values.push_back(
        Rounded(static_cast<float>(static_cast<int32_t>(seed)) * 0x1p-31f, type, &m.stored));
  }
  return m;
}

class EmulatedMma : public testing::TestWithParam<std::pair<const char*, Type>> {};

TEST_P(EmulatedMma, AgreesWithPlainLoops) {
  const auto [name, type] = GetParam();
  const Matrix a = Some(16 * 32, type, 1), b = Some(32 * 32, type, 2),
               across = Some(32 * 16, type, 3);
  const Kernel* kernel = FindKernel(name);
  ASSERT_NE(kernel, nullptr);
  for (uint64_t seed = 0; seed < 4; ++seed) {
    std::vector<float> c(16 * 32), maximum(16), sum(16), scaled(16 * 32), second(16 * 16);
    std::vector<int> leaders(16);
    const MmaArgs args = {a.data(),   b.data(),       across.data(), c.data(),     maximum.data(),
                          sum.data(), leaders.data(), scaled.data(), second.data()};
    BlockRunner runner;
    const int waves = 2;
    const base::Status s =
        runner.Run(*kernel, &args,
                   {.threads = waves * WaveSize(), .shared_bytes = waves * 2 * 16 * 32 * 4}, seed);
    ASSERT_TRUE(s) << s.error().message;
    for (size_t i = 0; i < 16; ++i) {
      double most = -1e30, total = 0;
      for (size_t j = 0; j < 32; ++j) {
        double want = 0;
        for (size_t k = 0; k < 32; ++k)
          want += static_cast<double>(a.values[32 * i + k]) * b.values[32 * j + k];
        // 32 products below 1, each rounded to f32.
        EXPECT_NEAR(c[32 * i + j], want, 32 * 0x1p-23) << i << ", " << j;
        EXPECT_EQ(scaled[32 * i + j], c[32 * i + j] * static_cast<float>(i + 1));
        if (j < 16) {
          most = std::max(most, static_cast<double>(c[32 * i + j]));
          total += c[32 * i + j];
        }
      }
      EXPECT_EQ(maximum[i], static_cast<float>(most));
      EXPECT_NEAR(sum[i], total, 16 * 0x1p-21);
      EXPECT_EQ(leaders[i], waves) << "one lane a row and wave leads";
      for (size_t n = 0; n < 16; ++n) {
        double want = 0;
        for (size_t k = 0; k < 32; ++k)
          want += static_cast<double>(Rounded(c[32 * i + k], type, nullptr)) *
                  across.values[16 * k + n];
        EXPECT_NEAR(second[16 * i + n], want, 32 * 8 * 0x1p-23) << i << ", " << n;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, EmulatedMma,
                         testing::Values(std::pair{"test_mma_f32", Type::kF32},
                                         std::pair{"test_mma_plain", Type::kF32},
                                         std::pair{"test_mma_bf16", Type::kBF16},
                                         std::pair{"test_mma_f16", Type::kF16}),
                         [](const auto& info) { return std::string(info.param.first); });

}  // namespace
}  // namespace vt::gpu::emulated
