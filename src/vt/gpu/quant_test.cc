// Quantised matrices on the emulated device: what is held, what is read of it, and products with
// it, held against a file's values in double.
#include "vt/ir/quant.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "base/strings.h"
#include "vt/gpu/args_experts.h"
#include "vt/gpu/emulated/launch.h"
#include "vt/gpu/quant_layout.h"
#include "vt/gpu/quant_plan.h"

namespace vt::gpu {
namespace {

using ir::DType;

constexpr DType kFormats[] = {DType::kQ4_0, DType::kQ4_1, DType::kQ5_0,   DType::kQ5_1,
                              DType::kQ8_0, DType::kQ2_K, DType::kQ3_K,   DType::kQ4_K,
                              DType::kQ5_K, DType::kQ6_K, DType::kIQ4_NL, DType::kIQ4_XS};

// Memory that starts as a device's does: aligned, and of finite values that nobody wrote.
struct Memory {
  explicit Memory(int64_t bytes) : bytes(static_cast<size_t>(bytes + 255), std::byte{0x5b}) {}
  std::byte* data() {
    return bytes.data() + (256 - reinterpret_cast<uintptr_t>(bytes.data()) % 256) % 256;
  }
  std::vector<std::byte> bytes;
};

// Any bits, but for the halves: those are small numbers of both signs.
struct Stored {
  Stored(DType format, int64_t rows, int64_t columns, uint32_t seed)
      : format(format), rows(rows), columns(columns) {
    std::mt19937 random(seed);
    blocks.resize(static_cast<size_t>(rows * ir::Bytes(format, columns)));
    for (uint8_t& b : blocks) b = static_cast<uint8_t>(random());
    const auto bytes = static_cast<size_t>(ir::Info(format).bytes);
    for (size_t at = 0; at < blocks.size(); at += bytes) {
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

template <class Args>
void Launch(const std::string& name, const Args& args, emulated::Shape shape) {
  const emulated::Kernel* k = emulated::FindKernel(name.c_str());
  ASSERT_NE(k, nullptr) << name;
  ASSERT_EQ(k->args_bytes, sizeof(Args));
  base::Status s = emulated::CheckShape(*k, shape);
  ASSERT_TRUE(s) << name << ": " << s.error().message;
  s = emulated::BlockRunner().Run(*k, &args, shape, 1);
  ASSERT_TRUE(s) << name << ": " << s.error().message;
}

double Dot(const std::vector<float>& x, int64_t i, const std::vector<float>& w, int64_t j,
           int64_t k) {
  double sum = 0;
  for (int64_t n = 0; n < k; ++n)
    sum +=
        static_cast<double>(x[static_cast<size_t>(i * k + n)]) * w[static_cast<size_t>(j * k + n)];
  return sum;
}

Rows RowsAt(std::vector<float>& v, int64_t width) {
  return {v.data(), width, 1, static_cast<int32_t>(width)};
}
Header Tokens(int tokens) { return {tokens, 1, 1, 1}; }
Count PerToken() { return {Of::kTokens, 1}; }

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
  Launch("quant_expand_f32", a, {.grid_x = 2, .threads = kQuantExpandThreads});
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
      Launch(fmt::format("quant_gemv_{}", at_once), a,
             {.grid_x = 3,
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
  Launch(std::string(plan.kernel) + "_f32", a,
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
  Launch(
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
  Launch("quant_gemv_1", a,
         {.grid_x = 2, .threads = 4 * emulated::WaveSize(), .shared_bytes = 4 * kQuantUnit * 4});
  for (int j = 0; j < 14; ++j) {
    const double want = j < 6    ? Dot(x.values, 0, q.values, j, 256)
                        : j < 11 ? Dot(x.values, 0, v.values, j - 6, 256) + 0.5
                                 : Dot(x.values, 0, z.values, j - 11, 256);
    EXPECT_NEAR(y[static_cast<size_t>(j)], want, 1e-4) << j;
  }
}

// Matrices of experts, one behind the other as the loader leaves them.
struct HeldExperts {
  HeldExperts(DType format, int64_t count, int64_t rows, int64_t k)
      : all(format, count * rows, k, 20),
        layout(QuantLayout::Of(*QuantFormatOf(format), rows, k)),
        memory(count * layout.bytes) {
    for (int64_t e = 0; e < count; ++e) {
      const WeightView view{
          reinterpret_cast<const std::byte*>(all.blocks.data()) + e * rows * ir::Bytes(format, k),
          format, rows, k};
      for (int64_t r = 0; r < rows; ++r) {
        std::array<std::byte*, 4> to;
        for (size_t p = 0; p < 4; ++p)
          to[p] = memory.data() + e * layout.bytes + layout.planes[p].offset +
                  r * layout.planes[p].row_bytes;
        RepackQuantRow(view, r, to);
      }
    }
    matrix.planes = layout.At(memory.data());
    matrix.format = *QuantFormatOf(format);
    matrix.rows = static_cast<int32_t>(rows);
  }
  Stored all;  // [experts x rows]
  QuantLayout layout;
  Memory memory;
  QuantMatrix matrix;
};

constexpr int kTokens = 3, kChosen = 2, kExperts = 4, kOut = 7, kIn = 512;
const std::vector<int32_t> kIds = {2, 0, 3, -1, 2, 1};

QuantExpertArgs ExpertArgs(const Header& header, HeldExperts& w, std::vector<float>& y) {
  QuantExpertArgs a;
  a.linear.header = &header;
  a.linear.segments[0].w = w.matrix;
  a.linear.units = 4;
  a.linear.groups = 2;
  a.linear.out = RowsAt(y, kOut);
  a.linear.count = {Of::kTokens, kChosen};
  a.ids = kIds.data();
  a.expert_bytes = w.layout.bytes;
  a.experts = kExperts;
  a.chosen = kChosen;
  return a;
}

TEST(QuantExperts, EachRowIsOfTheMatrixThatItsIdNames) {
  HeldExperts w(DType::kQ4_K, kExperts, kOut, kIn);
  for (const bool shared : {false, true}) {
    Activation x(shared ? kTokens : kTokens * kChosen, kIn, 21);
    const Header header = Tokens(kTokens);
    std::vector<float> y(kTokens * kChosen * kOut, 7.0f);
    QuantExpertArgs a = ExpertArgs(header, w, y);
    a.linear.x = x.view();
    a.shared_x = shared ? 1 : 0;
    Launch("quant_experts", a,
           {.grid_x = 2,
            .grid_y = kTokens * kChosen + 1,  // padding
            .threads = 2 * emulated::WaveSize(),
            .shared_bytes = 2 * kQuantUnit * 4});
    for (int p = 0; p < kTokens * kChosen; ++p) {
      const int id = kIds[static_cast<size_t>(p)], row = shared ? p / kChosen : p;
      for (int j = 0; j < kOut; ++j) {
        const double want = id < 0 ? 0 : Dot(x.values, row, w.all.values, id * kOut + j, kIn);
        EXPECT_NEAR(y[static_cast<size_t>(p * kOut + j)], want, 1e-4) << p << ", " << j;
      }
    }
  }
}

TEST(QuantExperts, SumsAreWeighted) {
  HeldExperts w(DType::kQ6_K, kExperts, kOut, kIn);
  Activation x(kTokens * kChosen, kIn, 22);
  const Header header = Tokens(kTokens);
  std::vector<float> y(kTokens * kOut, 7.0f), weights = {0.5f, 2, -1, 3, 0.25f, 1};
  for (const int parts : {1, 2}) {
    QuantExpertArgs a = ExpertArgs(header, w, y);
    a.linear.x = x.view();
    a.linear.parts = parts;
    a.linear.count = PerToken();
    a.weights = weights.data();
    Launch("quant_experts_sum", a,
           {.grid_x = 2,
            .grid_y = kTokens,
            .threads = parts * 2 * emulated::WaveSize(),
            .shared_bytes = parts * 2 * kQuantUnit * 4});
    for (int t = 0; t < kTokens; ++t) {
      for (int j = 0; j < kOut; ++j) {
        double want = 0;
        for (int c = 0; c < kChosen; ++c) {
          const int p = t * kChosen + c, id = kIds[static_cast<size_t>(p)];
          if (id >= 0)
            want += weights[static_cast<size_t>(p)] *
                    Dot(x.values, p, w.all.values, id * kOut + j, kIn);
        }
        EXPECT_NEAR(y[static_cast<size_t>(t * kOut + j)], want, 2e-4) << t << ", " << j;
      }
    }
  }
}

// Many rows: sorted on the device, tiles of one expert each; matrices of blocks and of plain
// values.
TEST(QuantExperts, TilesTakeTheRowsOfOneExpert) {
  constexpr int kPairs = 200;
  std::mt19937 random(23);
  std::vector<int32_t> ids(kPairs + 8), order(kPairs + 8, -7);
  for (int32_t& id : ids) id = static_cast<int32_t>(random() % 6) - 1;  // 4 and -1: nobody
  const Header header = Tokens(kPairs / 2);
  std::vector<QuantExpertTile> tiles(12);
  ExpertSortArgs sort;
  sort.header = &header;
  sort.ids = ids.data();
  sort.count = {Of::kTokens, 2};
  sort.experts = kExperts;
  sort.rows = kQuantTile4.rows;
  sort.most_tiles = static_cast<int32_t>(tiles.size());
  sort.tiles = tiles.data();
  sort.order = order.data();
  Launch("expert_sort", sort, {.threads = kExpertSortThreads, .shared_bytes = 2 * 5 * 4});
  int rows = 0;
  for (const QuantExpertTile& t : tiles) {
    for (int i = 0; i < t.count; ++i, ++rows) {
      const int32_t id = ids[static_cast<size_t>(order[static_cast<size_t>(t.first + i)])];
      EXPECT_EQ(t.expert, id < kExperts ? id : -1);
    }
  }
  EXPECT_EQ(rows, kPairs);

  constexpr int kSmall = 256;
  HeldExperts w(DType::kQ5_K, kExperts, kOut, kSmall);
  std::vector<float> x(kPairs / 2 * kSmall), y((kPairs + 8) * kOut, 7.0f);
  std::normal_distribution<float> normal;
  for (float& f : x) f = normal(random);
  for (const bool plain : {false, true}) {
    QuantExpertTileArgs a;
    a.linear.header = &header;
    a.linear.x = RowsAt(x, kSmall);
    a.linear.out = RowsAt(y, kOut);
    a.linear.segment.w = w.matrix;
    if (plain) {
      a.linear.segment.w.format = QuantFormat::kPlain;
      a.linear.segment.w.planes.low = reinterpret_cast<const char*>(w.all.values.data());
    }
    a.linear.k = kSmall;
    a.linear.blocks = kSmall / 32;
    a.linear.out_f32 = a.linear.packed = 1;
    a.tiles = tiles.data();
    a.order = order.data();
    a.expert_bytes = plain ? kOut * kSmall * 4 : w.layout.bytes;
    a.chosen = 2;
    a.shared_x = 1;
    DeviceFacts device;
    device.value_type = DType::kF32;
    const QuantTilePlan plan = PlanQuantExpertTile(kPairs, kExperts, device);
    Launch(std::string(plan.kernel) + "_f32", a,
           {.grid_x = 1,
            .grid_y = static_cast<int>(tiles.size()),
            .threads = plan.shape.waves * emulated::WaveSize(),
            .shared_bytes = static_cast<int>(plan.shared_bytes)});
    for (int p = 0; p < kPairs; ++p) {
      const int32_t id = ids[static_cast<size_t>(p)];
      for (int j = 0; j < kOut; ++j) {
        const double want =
            id < 0 || id >= kExperts ? 0 : Dot(x, p / 2, w.all.values, id * kOut + j, kSmall);
        ASSERT_NEAR(y[static_cast<size_t>(p * kOut + j)], want, 2e-4) << p << ", " << j;
      }
    }
    EXPECT_EQ(y[kPairs * kOut], 7.0f);
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
  Launch("quantize_f32", a, {.grid_x = 2, .threads = kQuantizeThreads});
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
    a.w = w.data();
    a.eps = 1e-6f;
    a.offset = 0.5f;
    const auto threads = static_cast<int>(std::min<int64_t>((k / 8 + 63) / 64 * 64, 512));
    Launch("quantize_norm_f32", a,
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
  EXPECT_EQ(few.parts, 4);  // 512 units of the 2112 waves that there are
  const QuantGemvPlan many = PlanQuantGemv(5, QuantUnits(12288, true), 128, H200());
  EXPECT_EQ(many.at_once, 8);
  EXPECT_EQ(many.parts, 1);
  EXPECT_EQ(many.groups, 8);
  EXPECT_EQ(many.shared_bytes, 8 * 2 * 8 * 4);
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
