// Quantised matrices of experts on the emulated device: rows by their ids, weighted sums, sorted
// tiles.
#include "vt/gpu/quant_plan.h"
#include "vt/gpu/quant_testing.h"

namespace vt::gpu {
namespace {

using namespace quant_testing;  // NOLINT: this file is written in its words

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
    RunKernel("quant_experts", a,
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
  // A wave's units side by side too.
  for (const auto& [parts, shared] : {std::pair{1, 1}, {2, 1}, {1, 2}, {2, 4}}) {
    QuantExpertArgs a = ExpertArgs(header, w, y);
    a.linear.x = x.view();
    a.linear.parts = parts;
    a.linear.lanes = emulated::WaveSize() / shared;
    a.linear.count = PerToken();
    a.weights = weights.data();
    RunKernel("quant_experts_sum", a,
              {.grid_x = 2,
               .grid_y = kTokens,
               .threads = parts * 2 * emulated::WaveSize(),
               .shared_bytes = parts * 2 * shared * kQuantUnit * 4});
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

// Rows of 8, 16 and 24 blocks, which leave lanes for other rows or idle; with a shared expert of
// another format and without, a residual, ids of nobody, more rows than a block has and padding.
TEST(QuantExperts, SumsOfShortRowsTakeAWaveAnExpert) {
  constexpr int kRows = 43;
  DeviceFacts device;
  device.properties.wave = emulated::WaveSize();
  device.cuda = true;
  for (const int64_t k : {256, 512, 768}) {
    HeldExperts w(DType::kQ4_K, kExperts, kRows, k), shared_w(DType::kQ6_K, 1, kRows, k);
    Activation x(kTokens * kChosen, k, 31), shared_x(kTokens, k, 32);
    const Header header = Tokens(kTokens);
    std::vector<float> weights = {0.5f, 2, -1, 3, 0.25f, 1}, gate = {0.7f, -2, 1.5f};
    for (const bool shared : {false, true}) {
      std::vector<float> y((kTokens + 1) * kRows, 7.0f), residual = y;
      const QuantDownPlan plan = PlanQuantDown(k / 32, kChosen + (shared ? 1 : 0), device);
      ASSERT_GT(plan.lanes, 0);
      QuantExpertArgs a;
      a.linear.header = &header;
      a.linear.x = x.view();
      a.linear.segments[0].w = w.matrix;
      a.linear.segments[1].w = shared_w.matrix;
      a.linear.out = RowsAt(y, kRows);
      a.linear.residual = RowsAt(residual, kRows);
      a.linear.count = PerToken();
      a.linear.lanes = plan.lanes;
      a.ids = kIds.data();
      a.weights = weights.data();
      a.expert_bytes = w.layout.bytes;
      a.experts = kExperts;
      a.chosen = kChosen;
      if (shared) {
        a.shared = shared_x.view();
        a.gate = RowsAt(gate, 1);
      }
      RunKernel(shared ? "quant_experts_down_q4_k_q6_k" : "quant_experts_down_q4_k", a,
                {.grid_x = static_cast<int>((kRows + plan.rows - 1) / plan.rows),
                 .grid_y = kTokens + 1,
                 .threads = (kChosen + (shared ? 1 : 0)) * emulated::WaveSize(),
                 .shared_bytes = static_cast<int>(plan.shared_bytes)});
      for (int t = 0; t <= kTokens; ++t) {
        for (int j = 0; j < kRows; ++j) {
          double want = 7;
          for (int c = 0; c < kChosen && t < kTokens; ++c) {
            const int p = t * kChosen + c, id = kIds[static_cast<size_t>(p)];
            if (id >= 0)
              want += weights[static_cast<size_t>(p)] *
                      Dot(x.values, p, w.all.values, id * kRows + j, k);
          }
          if (shared && t < kTokens)
            want +=
                gate[static_cast<size_t>(t)] * Dot(shared_x.values, t, shared_w.all.values, j, k);
          EXPECT_NEAR(y[static_cast<size_t>(t * kRows + j)], want, 4e-4)
              << "k " << k << ", shared " << shared << ", " << t << ", " << j;
        }
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
  RunKernel("expert_sort", sort,
            {.threads = kExpertSortThreads, .shared_bytes = ExpertSortBytes(kExperts)});
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
    RunKernel(std::string(plan.kernel) + "_f32", a,
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

}  // namespace
}  // namespace vt::gpu
