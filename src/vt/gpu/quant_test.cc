// Quantised matrices on the emulated device: what is held, what is read of it, and products with
// it, held against a file's values in double.
#include <algorithm>

#include "base/strings.h"
#include "vt/gpu/quant_testing.h"

namespace vt::gpu {
namespace {

using namespace quant_testing;  // NOLINT: this file is written in its words

constexpr DType kFormats[] = {DType::kQ4_0,  DType::kQ4_1, DType::kQ5_0,   DType::kQ5_1,
                              DType::kQ8_0,  DType::kQ2_K, DType::kQ3_K,   DType::kQ4_K,
                              DType::kQ5_K,  DType::kQ6_K, DType::kIQ4_NL, DType::kIQ4_XS,
                              DType::kMXFP4, DType::kF8_32};

class QuantKernels : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Formats, QuantKernels, testing::ValuesIn(kFormats),
                         [](const auto& info) { return std::string(ir::Name(info.param)); });

TEST_P(QuantKernels, AreHeldInTheFilesBytes) {
  for (const int64_t k : {256, 4096}) {
    const int64_t held = QuantLayout::Of(*QuantFormatOf(GetParam()), 64, k).bytes;
    EXPECT_GE(held, 64 * ir::Bytes(GetParam(), k));
    EXPECT_LE(held, 64 * ir::Bytes(GetParam(), k) * 103 / 100);
  }
}

// Codes and scales as they stand, every value of random blocks; rows that the table lacks are
// zeros.
TEST_P(QuantKernels, ExpandGivesTheFilesValuesExactly) {
  const Stored s(GetParam(), 5, 512, 1);
  Held held(s);
  const std::vector<int32_t> index = {4, 0, -1, 2, 2, 5, 3, 1, 0};
  std::vector<float> y(index.size() * 512, 7.0f);
  const Header header = Tokens(8);
  QuantExpandArgs a;
  a.header = &header;
  a.w = held.matrix;
  a.blocks = 16;
  a.index = index.data();
  a.y = RowsAt(y, 512);
  a.count = PerToken();
  RunKernel("quant_expand_f32", a, {.grid_x = 2, .threads = kQuantExpandThreads});
  for (size_t r = 0; r < 8; ++r) {
    for (size_t i = 0; i < 512; ++i) {
      const bool exists = index[r] >= 0 && index[r] < 5;
      const float want = exists ? s.values[static_cast<size_t>(index[r]) * 512 + i] : 0;
      ASSERT_EQ(y[r * 512 + i], want) << "row " << r << ", value " << i;
    }
  }
  EXPECT_EQ(y[8 * 512], 7.0f);  // padding
}

// Few rows: 11 rows of weights in units of two, k in whole waves and not, in parts and not.
TEST_P(QuantKernels, GemvIsTheProductOfWhatTheBlocksMean) {
  for (const auto& [k, parts] :
       std::vector<std::pair<int64_t, int>>{{256, 1}, {2304, 1}, {4352, 2}}) {
    const Stored s(GetParam(), 11, k, 2);
    Held held(s);
    for (const int tokens : {1, 2, 3, 7}) {
      if (tokens > QuantTokens(*QuantFormatOf(GetParam()))) continue;
      Activation x(tokens, k, 3);
      const Header header = Tokens(tokens);
      std::vector<float> y(static_cast<size_t>(tokens * 11), 7.0f), r = y;
      QuantGemvArgs a;
      a.header = &header;
      a.x = x.view();
      a.out = RowsAt(y, 11);
      if (tokens == 3) a.residual = RowsAt(r, 11);
      a.count = PerToken();
      a.segments[0].w = held.matrix;
      a.units = 6;
      a.parts = parts;
      a.groups = 2;
      const int at_once = tokens == 3 ? 4 : tokens == 7 ? 8 : tokens;
      // By the kernel of the format and by that of all, one unit a wave and more.
      const bool alone = tokens % 2 == 1;
      RunKernel(fmt::format("quant_gemv_{}{}", at_once,
                            alone ? QuantSetSuffix({a.segments, 1}) : std::string()),
                a,
                {.grid_x = alone || parts > 1 ? 3 : 2,
                 .threads = parts * 2 * emulated::WaveSize(),
                 .shared_bytes = parts * 2 * kQuantUnit * at_once * 4});
      for (int t = 0; t < tokens; ++t) {
        double largest = 0;
        for (int j = 0; j < 11; ++j)
          largest = std::max(largest, std::fabs(Dot(x.values, t, s.values, j, k)));
        for (int j = 0; j < 11; ++j) {
          const double want = Dot(x.values, t, s.values, j, k) + (tokens == 3 ? 7 : 0);
          EXPECT_NEAR(y[static_cast<size_t>(t * 11 + j)], want, 1e-5 * (largest + 7))
              << "k " << k << ", " << tokens << " tokens, " << t << ", " << j;
        }
      }
    }
  }
}

TEST_P(QuantKernels, TilesMultiplyManyRows) {
  const int64_t k = ir::Info(GetParam()).block == 32 ? 96 : 256;  // an odd number of blocks too
  const Stored s(GetParam(), 70, k, 4);
  Held held(s);
  std::vector<float> x(80 * static_cast<size_t>(k)), y(80 * 70, 7.0f);
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  for (float& f : x) f = normal(random);
  const Header header = Tokens(77);
  QuantTileArgs a;
  a.header = &header;
  a.x = RowsAt(x, k);
  a.out = RowsAt(y, 70);
  a.segment.w = held.matrix;
  a.count = PerToken();
  a.k = static_cast<int32_t>(k);
  a.blocks = static_cast<int32_t>(k / 32);
  a.out_f32 = 1;
  a.packed = 1;
  DeviceFacts device;
  device.value_type = DType::kF32;
  const QuantTilePlan plan = PlanQuantTile(80, device);
  RunKernel(std::string(plan.kernel) + "_f32", a,
            {.grid_x = 2,
             .grid_y = 2,
             .threads = plan.shape.waves * emulated::WaveSize(),
             .shared_bytes = static_cast<int>(plan.shared_bytes)});
  for (int t = 0; t < 80; ++t) {
    double largest = 0;
    for (int j = 0; j < 70; ++j) largest = std::max(largest, std::fabs(Dot(x, t, s.values, j, k)));
    for (int j = 0; j < 70; ++j) {
      const double want = t < 77 ? Dot(x, t, s.values, j, k) : 7;
      ASSERT_NEAR(y[static_cast<size_t>(t * 70 + j)], want, 1e-5 * largest) << t << ", " << j;
    }
  }
}

// Gate and up of one format, the gate activated: out = silu(gate) * up.
TEST(QuantGemv, AnActMulTakesARowOfEachWeight) {
  const Stored gate(DType::kQ4_K, 9, 512, 6), up(DType::kQ4_K, 9, 512, 7);
  Held g(gate), u(up);
  Activation x(2, 512, 8);
  const Header header = Tokens(2);
  std::vector<float> y(18);
  QuantGemvArgs a;
  a.header = &header;
  a.x = x.view();
  a.out = RowsAt(y, 9);
  a.count = PerToken();
  a.segments[0].w = g.matrix;
  a.segments[1].w = u.matrix;
  a.segment_count = 2;
  a.units = 9;
  a.groups = 4;
  a.act = RowFn::kSilu;
  RunKernel(
      "quant_gemv_2", a,
      {.grid_x = 3, .threads = 4 * emulated::WaveSize(), .shared_bytes = 4 * kQuantUnit * 2 * 4});
  for (int t = 0; t < 2; ++t) {
    for (int j = 0; j < 9; ++j) {
      const double v = Dot(x.values, t, gate.values, j, 512);
      const double want = v / (1 + std::exp(-v)) * Dot(x.values, t, up.values, j, 512);
      EXPECT_NEAR(y[static_cast<size_t>(t * 9 + j)], want, 1e-4 * (1 + std::fabs(want)));
    }
  }
}

// Formats differ from segment to segment, as in the mixes of files.
TEST(QuantGemv, SegmentsHaveFormatsOfTheirOwn) {
  const Stored q(DType::kQ4_K, 6, 256, 9), v(DType::kQ6_K, 5, 256, 10), z(DType::kQ8_0, 3, 256, 11);
  Held hq(q), hv(v), hz(z);
  Activation x(1, 256, 12);
  const Header header = Tokens(1);
  std::vector<float> y(14), bias(5, 0.5f);
  QuantGemvArgs a;
  a.header = &header;
  a.x = x.view();
  a.out = RowsAt(y, 14);
  a.count = PerToken();
  a.segments[0].w = hq.matrix;
  a.segments[1].w = hv.matrix;
  a.segments[1].column = 6;
  a.segments[1].first_unit = 3;
  a.segments[1].bias = bias.data();
  a.segments[2].w = hz.matrix;
  a.segments[2].column = 11;
  a.segments[2].first_unit = 6;
  a.segment_count = 3;
  a.units = 8;
  a.groups = 4;
  RunKernel("quant_gemv_1", a,
            {.grid_x = 2, .threads = 4 * emulated::WaveSize(), .shared_bytes = 4 * kQuantUnit * 4});
  for (int j = 0; j < 14; ++j) {
    const double want = j < 6    ? Dot(x.values, 0, q.values, j, 256)
                        : j < 11 ? Dot(x.values, 0, v.values, j - 6, 256) + 0.5
                                 : Dot(x.values, 0, z.values, j - 11, 256);
    EXPECT_NEAR(y[static_cast<size_t>(j)], want, 1e-4) << j;
  }
}

TEST(Quantize, CodesAreThoseOfTheReferenceBitForBit) {
  Activation want(3, 288, 13);
  Memory out(4 * 288 / 32 * 40);
  const Header header = Tokens(3);
  QuantizeArgs a;
  a.header = &header;
  a.x.rows = RowsAt(want.plain, 288);
  a.x.f32 = 1;
  a.y = {reinterpret_cast<int8_t*>(out.data()), reinterpret_cast<QuantSum*>(out.data() + 4 * 288),
         4, 9};
  a.count = PerToken();
  RunKernel("quantize_f32", a, {.grid_x = 2, .threads = kQuantizeThreads});
  EXPECT_EQ(std::memcmp(a.y.codes, want.view().codes, 3 * 288), 0);
  EXPECT_EQ(std::memcmp(a.y.sums, want.view().sums, 3 * 9 * sizeof(QuantSum)), 0);
  EXPECT_EQ(out.data()[3 * 288], std::byte{0x5b});  // padding
}

// Rows longer than a block's registers hold.
TEST(Quantize, ANormBeforeItAndASumBeforeThat) {
  for (const int64_t k : {96, 2048, 12288}) {
    Activation x(2, k, 14), r(2, k, 15);
    std::vector<float> w(static_cast<size_t>(k)), sum(static_cast<size_t>(2 * k)),
        normed(static_cast<size_t>(2 * k));
    for (size_t i = 0; i < w.size(); ++i) w[i] = 1 + 0.01f * static_cast<float>(i % 7);
    for (size_t t = 0; t < 2; ++t) {
      double squares = 0;
      for (size_t i = t * w.size(); i < (t + 1) * w.size(); ++i)
        squares += std::pow(static_cast<double>(x.plain[i]) + r.plain[i], 2);
      const double scale = 1 / std::sqrt(squares / static_cast<double>(k) + 1e-6);
      for (size_t i = 0; i < w.size(); ++i) {
        const size_t at = t * w.size() + i;
        normed[at] = static_cast<float>((x.plain[at] + r.plain[at]) * scale * (w[i] + 0.5f));
      }
    }
    Memory out(2 * k / 32 * 40);
    const Header header = Tokens(2);
    QuantizeNormArgs a;
    a.header = &header;
    a.x.rows = RowsAt(x.plain, k);
    a.add.rows = RowsAt(r.plain, k);
    a.sum.rows = RowsAt(sum, k);
    a.x.f32 = a.add.f32 = a.sum.f32 = 1;
    a.y = {reinterpret_cast<int8_t*>(out.data()), reinterpret_cast<QuantSum*>(out.data() + 2 * k),
           2, static_cast<int32_t>(k / 32)};
    a.count = PerToken();
    a.norm = {w.data(), 1e-6f, 0.5f};
    const auto threads = static_cast<int>(std::min<int64_t>((k / 8 + 63) / 64 * 64, 512));
    RunKernel("quantize_norm_f32", a,
              {.grid_x = 2, .threads = threads, .shared_bytes = kRowsSharedBytes});
    for (size_t i = 0; i < sum.size(); ++i) {
      ASSERT_EQ(sum[i], x.plain[i] + r.plain[i]) << i;
      const QuantSum& block = a.y.sums[i / 32];
      ASSERT_NEAR(block.scale * a.y.codes[i], normed[i], 0.501f * block.scale + 1e-6f) << i;
    }
    for (int64_t b = 0; b < 2 * k / 32; ++b) {
      int halves[2] = {};
      for (int i = 0; i < 32; ++i) halves[i / 16] += a.y.codes[32 * b + i];
      ASSERT_EQ(a.y.sums[b].sum[0], halves[0]);
      ASSERT_EQ(a.y.sums[b].sum[1], halves[1]);
    }
  }
}

DeviceFacts H200() {
  DeviceFacts d;
  d.properties.units = 132;
  d.properties.wave = 32;
  d.cuda = true;
  return d;
}

// Qwen3-8B's o and gate/up projections on 132 multiprocessors.
TEST(QuantPlan, PartsOfKFillTheDevice) {
  const QuantGemvPlan few = PlanQuantGemv(1, QuantUnits(1024, false), 128, H200());
  EXPECT_EQ(few.at_once, 1);
  EXPECT_EQ(few.parts, 4);  // 512 units of the 3168 waves that there are
  const QuantGemvPlan many = PlanQuantGemv(5, QuantUnits(12288, true), 128, H200());
  EXPECT_EQ(many.at_once, 8);
  EXPECT_EQ(many.parts, 1);
  EXPECT_EQ(many.groups, 8);
  EXPECT_EQ(many.shared_bytes, 8 * 2 * 8 * 4);
  // Every wave has as many units one after the other.
  EXPECT_EQ(many.blocks, (12288 + 47) / 48);  // 2112 waves: six rounds of 2048
  // No part has less than a block for every lane.
  EXPECT_EQ(PlanQuantGemv(1, 8, 32, H200()).parts, 1);
}

TEST(QuantPlan, TilesFitTheSharedMemoryOfEveryCard) {
  for (const DType t : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const int64_t rows : {9, 16, 17, 64, 65, 8192}) {
      DeviceFacts d;
      d.value_type = t;
      EXPECT_LE(PlanQuantTile(rows, d).shared_bytes, 64 << 10);
    }
  }
}

}  // namespace
}  // namespace vt::gpu
