// Kernels of experts on the emulated device: matrices of plain values for few rows, the order of
// many rows, weighted sums. Each result is held against plain loops.
#include <array>
#include <set>

#include "base/strings.h"
#include "vt/gpu/args_experts_plain.h"
#include "vt/gpu/quant_testing.h"

namespace vt::gpu {
namespace {

using namespace quant_testing;  // NOLINT: this file is written in its words

constexpr DType kTypes[] = {DType::kF32, DType::kBF16, DType::kF16};

// Rows of values of a type, `pitch` apart, and what they are. What is between them is zeros or NaN.
struct Values {
  Values(DType type, int64_t rows, int64_t width, int64_t pitch, uint32_t seed, bool zeros = true)
      : type(type),
        width(width),
        pitch(pitch),
        bytes(ir::Info(type).bytes),
        memory(rows * pitch * bytes) {
    std::memset(memory.data(), zeros ? 0 : 0xff, static_cast<size_t>(rows * pitch * bytes));
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    std::vector<float> row(static_cast<size_t>(width));
    for (int64_t r = 0; r < rows; ++r) {
      for (float& f : row) f = normal(random);
      std::byte* to = memory.data() + r * pitch * bytes;
      ir::Quantize(type, row.data(), to, width);
      ir::Dequantize(type, to, row.data(), width);
      values.insert(values.end(), row.begin(), row.end());
    }
  }
  Rows rows(int inner = 1) {
    return {memory.data(), pitch * inner, inner, static_cast<int32_t>(width)};
  }
  View view(int inner = 1) { return {rows(inner), type == DType::kF32 ? 1 : 0}; }
  float at(int64_t row, int64_t i) {  // as it is now
    float f = 0;
    ir::Dequantize(type, memory.data() + (row * pitch + i) * bytes, &f, 1);
    return f;
  }
  DType type;
  int64_t width, pitch, bytes;
  Memory memory;
  std::vector<float> values;
};

double Near(DType type, double want) {
  const double unit = type == DType::kF32 ? 1e-5 : type == DType::kF16 ? 1.0 / 1024 : 1.0 / 128;
  return unit * (1 + std::fabs(want));
}

constexpr int kTokens = 3, kChosen = 3, kExperts = 5, kPairs = kTokens * kChosen;
// Some are no expert's.
const std::vector<int32_t> kIds = {4, 0, 2, -1, 3, 5, 1, 1, 4};

std::string NameOf(const char* kernel, const PlainExpertShape& s, DType type) {
  return fmt::format("{}_{}x{}_{}", kernel, s.rows, s.depth, ir::Name(type));
}
// Less than a step of a wave; parts of several; more than is under way at once.
std::vector<int64_t> Widths(DType type, int depth) {
  const int64_t values = 16 / ir::Info(type).bytes, step = emulated::WaveSize() * values;
  return {values, step + 3 * values, (depth + 1) * step + values};
}

PlainExpertArgs ArgsOf(const Header& header, int64_t k, int64_t pitch) {
  PlainExpertArgs a;
  a.header = &header;
  a.ids = kIds.data();
  a.k = static_cast<int32_t>(k);
  a.pitch = static_cast<int32_t>(pitch);
  a.experts = kExperts;
  a.chosen = kChosen;
  return a;
}

void CheckRows(DType type, const PlainExpertShape& shape, int64_t k, bool act, bool shared,
               int turns = 1) {
  SCOPED_TRACE(fmt::format("{} {}x{} k {} act {} shared {} turns {}", ir::Name(type), shape.rows,
                           shape.depth, k, act, shared, turns));
  const int64_t pitch = (k + 31) / 32 * 32;
  constexpr int kRows[] = {7, 7, 4};  // of three segments; an act_mul has two
  Values x(type, shared ? kTokens : kPairs, k, pitch + 32, 31, false);
  std::vector<Values> w;
  for (const int rows : kRows) w.emplace_back(type, kExperts * rows, k, pitch, 32 + w.size());
  const int64_t width = act ? 7 : 18;
  for (const bool f32 : {false, true}) {
    // A row of the plan that the step does not have.
    Values y(f32 ? DType::kF32 : type, kPairs + kChosen, width, width + 3, 35);
    const Header header = Tokens(kTokens);
    PlainExpertArgs a = ArgsOf(header, k, pitch);
    std::vector<int32_t> ids = kIds;
    ids.resize(kPairs + kChosen, 77);
    a.ids = ids.data();
    a.x = x.rows();
    a.out = y.view();
    a.count = {Of::kTokens, kChosen};
    a.shared_x = shared ? 1 : 0;
    a.act = act ? RowFn::kSilu : RowFn::kNone;
    a.segment_count = act ? 2 : 3;
    const int rows = act ? shape.rows / 2 : shape.rows;
    a.units = 0;
    for (int s = 0; s < a.segment_count; ++s) {
      a.segments[s].w = w[static_cast<size_t>(s)].memory.data();
      a.segments[s].rows = kRows[s];
      a.segments[s].column = act ? 0 : s * 7;
      a.segments[s].first_unit = act ? 0 : a.units;
      if (!act || s == 0) a.units += (kRows[s] + rows - 1) / rows;
    }
    a.turns = turns;
    const int of_block = turns * kPlainExpertsThreads / emulated::WaveSize();
    RunKernel(NameOf("experts", shape, type), a,
              {.grid_x = kPairs + kChosen,
               .grid_y = (a.units + of_block - 1) / of_block,
               .threads = kPlainExpertsThreads,
               .shared_bytes = static_cast<int>(k * x.bytes)});
    const auto dot = [&](int p, size_t s, int row) {
      const int id = kIds[static_cast<size_t>(p)];
      return id < 0 || id >= kExperts
                 ? 0.0
                 : Dot(x.values, shared ? p / kChosen : p, w[s].values, id * kRows[s] + row, k);
    };
    for (int p = 0; p < kPairs; ++p) {
      for (int i = 0; i < width; ++i) {
        double want = dot(p, static_cast<size_t>(i / 7), i % 7);
        const double terms = std::sqrt(static_cast<double>(k));
        if (act) want = want / (1 + std::exp(-want)) * dot(p, 1, i);
        ASSERT_NEAR(y.at(p, i), want, Near(f32 ? DType::kF32 : type, want) + terms * 1e-4)
            << p << ", " << i;
      }
    }
    for (int p = kPairs; p < kPairs + kChosen; ++p)
      for (int i = 0; i < width; ++i)
        ASSERT_EQ(y.at(p, i), y.values[static_cast<size_t>(p * width + i)]);
  }
}

TEST(PlainExperts, EachRowIsOfTheMatricesThatItsIdNames) {
  for (const DType type : kTypes) {
    for (const PlainExpertShape& shape : {kPlainExpertsLong, kPlainExpertsShort}) {
      for (const int64_t k : Widths(type, shape.depth)) {
        for (const bool act : {false, true}) CheckRows(type, shape, k, act, k % 64 != 0);
        for (const int turns : {1, 2, 5}) CheckRows(type, shape, k, true, k % 64 == 0, turns);
      }
    }
  }
}

// The rows of a shared expert, whose blocks stand before the others and are not a multiple of them.
void CheckSharedRows(DType type, const PlainExpertShape& shape, int64_t k, int turns) {
  SCOPED_TRACE(
      fmt::format("{} {}x{} k {} turns {}", ir::Name(type), shape.rows, shape.depth, k, turns));
  constexpr int kRows = 7, kSharedRows = 21;
  const int64_t pitch = (k + 31) / 32 * 32;
  Values x(type, kTokens + 1, k, pitch, 71);
  std::vector<Values> w, shared;
  for (uint32_t i = 0; i < 2; ++i) {
    w.emplace_back(type, kExperts * kRows, k, pitch, 72 + i);
    shared.emplace_back(type, kSharedRows, k, pitch, 74 + i);
  }
  Values y(type, kPairs + kChosen, kRows, kRows, 76),
      z(DType::kF32, kTokens + 1, kSharedRows, kSharedRows + 1, 77);
  std::vector<int32_t> ids = kIds;
  ids.resize(kPairs + kChosen, 0);
  const Header header = Tokens(kTokens);
  PlainExpertArgs a = ArgsOf(header, k, pitch);
  a.ids = ids.data();
  a.x = x.rows();
  a.out = y.view();
  a.shared_out = z.view();
  a.count = {Of::kTokens, kChosen};
  a.shared_x = 1;
  a.act = RowFn::kSilu;
  a.segment_count = 2;
  for (size_t i = 0; i < 2; ++i) {
    a.segments[i].w = w[i].memory.data();
    a.segments[i].rows = kRows;
    a.segments[kSharedUp + i].w = shared[i].memory.data();
    a.segments[kSharedUp + i].rows = kSharedRows;
  }
  const int rows = shape.rows / 2, waves = kPlainExpertsThreads / emulated::WaveSize();
  const int of_block = rows * waves * turns, grid_x = kPairs + kChosen;
  a.turns = turns;
  a.units = (kRows + rows - 1) / rows;
  a.shared_blocks = (kSharedRows + of_block - 1) / of_block;
  a.shared_grid = ((kTokens + 1) * a.shared_blocks + grid_x - 1) / grid_x;
  RunKernel(NameOf("experts", shape, type), a,
            {.grid_x = grid_x,
             .grid_y = a.shared_grid + (kRows + of_block - 1) / of_block,
             .threads = kPlainExpertsThreads,
             .shared_bytes = static_cast<int>(k * x.bytes)});
  const double terms = 1e-4 * std::sqrt(static_cast<double>(k));
  const auto check = [&](Values& got, int row, int i, double gate, double up) {
    const double want = gate / (1 + std::exp(-gate)) * up;
    ASSERT_NEAR(got.at(row, i), want, Near(got.type, want) + terms) << row << ", " << i;
  };
  for (int p = 0; p < kPairs; ++p) {
    const int id = kIds[static_cast<size_t>(p)];
    const auto dot = [&](size_t s, int i) {
      return id < 0 || id >= kExperts ? 0.0
                                      : Dot(x.values, p / kChosen, w[s].values, id * kRows + i, k);
    };
    for (int i = 0; i < kRows; ++i) check(y, p, i, dot(0, i), dot(1, i));
  }
  for (int t = 0; t < kTokens; ++t) {
    for (int i = 0; i < kSharedRows; ++i)
      check(z, t, i, Dot(x.values, t, shared[0].values, i, k),
            Dot(x.values, t, shared[1].values, i, k));
  }
  for (int i = 0; i < kSharedRows; ++i)
    ASSERT_EQ(z.at(kTokens, i), z.values[static_cast<size_t>(kTokens * kSharedRows + i)]);
}

TEST(PlainExperts, ASharedOneStandsBesideTheChosen) {
  for (const DType type : kTypes) {
    for (const PlainExpertShape& shape : {kPlainExpertsLong, kPlainExpertsShort}) {
      for (const int64_t k : Widths(type, shape.depth)) {
        for (const int turns : {1, 2, 8}) CheckSharedRows(type, shape, k, turns);
      }
    }
  }
}

// `waves` of the chosen, and those of a shared expert with `shared_k` values, if any.
void CheckSums(DType type, const PlainExpertShape& shape, int64_t k, int waves, int turns,
               int64_t shared_k = 0, int shared_waves = 0) {
  SCOPED_TRACE(fmt::format("{} {}x{} k {} waves {} turns {}, shared {} in {}", ir::Name(type),
                           shape.rows, shape.depth, k, waves, turns, shared_k, shared_waves));
  constexpr int kRows = 9;
  const int64_t pitch = (k + 31) / 32 * 32;
  Values x(type, kPairs, k, k, 41), w(type, kExperts * kRows, k, pitch, 42);
  const int64_t shared_pitch = (shared_k + 31) / 32 * 32;
  Values z(type, kTokens + 1, shared_k, shared_k, 46), s(type, kRows, shared_k, shared_pitch, 47),
      gate(type, kTokens + 1, 1, 2, 48);
  const std::vector<float> weights = {0.5f, 2, -1, 3, 0.25f, 1, 0, 1.5f, -0.5f};
  for (const bool adds : {false, true}) {
    Values y(adds ? DType::kF32 : type, kTokens + 1, kRows, kRows, 43),
        r(adds ? type : DType::kF32, kTokens, kRows, kRows + 1, 44),
        second(DType::kF32, kTokens, kRows, kRows, 45);
    const Header header = Tokens(kTokens);
    PlainExpertArgs a = ArgsOf(header, k, pitch);
    a.x = x.rows(kChosen);
    a.weights = weights.data();
    a.out = y.view();
    if (adds) a.residual = r.view();
    if (adds) a.second = second.view();
    a.count = PerToken();
    a.segments[0].w = w.memory.data();
    a.segments[0].rows = kRows;
    a.units = (kRows + shape.rows - 1) / shape.rows;
    a.turns = turns;
    a.stage = static_cast<int32_t>(k);
    if (shared_waves > 0) {
      a.z = z.rows();
      if (adds) a.gate = gate.view();
      a.segments[kSharedDown].w = s.memory.data();
      a.segments[kSharedDown].rows = kRows;
      a.shared_waves = shared_waves;
      a.shared_k = static_cast<int32_t>(shared_k);
      a.shared_pitch = static_cast<int32_t>(shared_pitch);
      a.shared_part =
          static_cast<int32_t>((shared_k + shared_waves - 1) / shared_waves + 63) / 64 * 64;
      a.stage = std::max(a.stage, a.shared_part);
    }
    const int all = waves + shared_waves;
    RunKernel(NameOf("experts_sum", shape, type), a,
              {.grid_x = kTokens + 1,
               .grid_y = (a.units + turns - 1) / turns,
               .threads = all * emulated::WaveSize(),
               .shared_bytes = all * static_cast<int>(a.stage * x.bytes + turns * shape.rows * 4)});
    for (int t = 0; t < kTokens; ++t) {
      for (int i = 0; i < kRows; ++i) {
        const auto at = static_cast<size_t>(t * kRows + i);
        double want = adds ? r.values[at] + second.values[at] : 0;
        for (int p = t * kChosen; p < (t + 1) * kChosen; ++p) {
          const int id = kIds[static_cast<size_t>(p)];
          if (id >= 0 && id < kExperts)
            want += weights[static_cast<size_t>(p)] * Dot(x.values, p, w.values, id * kRows + i, k);
        }
        if (shared_waves > 0)
          want += (adds ? gate.at(t, 0) : 1) * Dot(z.values, t, s.values, i, shared_k);
        const double terms = std::sqrt(static_cast<double>(k + shared_k));
        ASSERT_NEAR(y.at(t, i), want, Near(y.type, want) + terms * 1e-4) << t << ", " << i;
      }
    }
    for (int i = 0; i < kRows; ++i)
      ASSERT_EQ(y.at(kTokens, i), y.values[static_cast<size_t>(kTokens * kRows + i)]);
  }
}

TEST(PlainExperts, SumsAreWeightedAndAdded) {
  for (const DType type : kTypes) {
    for (const PlainExpertShape& shape : {kPlainExpertsSumLong, kPlainExpertsSumShort}) {
      const std::vector<int64_t> widths = Widths(type, shape.depth);
      for (size_t i = 0; i < widths.size(); ++i)
        for (const int turns : {1, 2, 8})
          CheckSums(type, shape, widths[i], static_cast<int>(i) + 1, turns);
    }
  }
}

TEST(PlainExperts, SumsHaveASharedOneAmongThem) {
  for (const DType type : kTypes) {
    for (const PlainExpertShape& shape : {kPlainExpertsSumLong, kPlainExpertsSumShort}) {
      const std::vector<int64_t> widths = Widths(type, shape.depth);
      for (const int64_t k : widths) {
        CheckSums(type, shape, k, 3, 1, 8, 1);
        CheckSums(type, shape, k, 1, 2, 200, 2);
        CheckSums(type, shape, k, 2, 3, widths[2] + 72, 1);
      }
    }
  }
}

// ids of no expert stand behind all others; tiles that are not needed are empty.
void CheckSort(int pairs, int experts, int rows, const std::vector<int32_t>& ids) {
  SCOPED_TRACE(fmt::format("{} pairs, {} experts, tiles of {}", pairs, experts, rows));
  const Header header = Tokens(pairs);
  const int most = std::min(pairs, pairs / rows + experts + 1);
  std::vector<QuantExpertTile> tiles(static_cast<size_t>(most + 1), {7, 7, 7, 7});
  std::vector<int32_t> order(static_cast<size_t>(pairs + 1), -7);
  ExpertSortArgs a;
  a.header = &header;
  a.ids = ids.data();
  a.count = PerToken();
  a.experts = experts;
  a.rows = rows;
  a.most_tiles = most;
  a.tiles = tiles.data();
  a.order = order.data();
  RunKernel("expert_sort", a,
            {.threads = kExpertSortThreads, .shared_bytes = ExpertSortBytes(experts)});
  EXPECT_EQ(tiles[static_cast<size_t>(most)].count, 7);
  EXPECT_EQ(order[static_cast<size_t>(pairs)], -7);
  std::set<int32_t> seen;
  int next = 0, last = 0, room = rows;
  bool ended = false;
  for (int t = 0; t < most; ++t) {
    const QuantExpertTile& tile = tiles[static_cast<size_t>(t)];
    if (tile.count == 0) {
      ended = true;
      continue;
    }
    ASSERT_FALSE(ended) << t;
    ASSERT_EQ(tile.first, next);
    ASSERT_LE(tile.count, rows);
    const int expert = tile.expert < 0 ? experts : tile.expert;
    // A tile that is not full is its expert's last.
    ASSERT_TRUE(t == 0 || expert > last || (expert == last && room == 0)) << t;
    last = expert;
    room = rows - tile.count;
    for (int i = 0; i < tile.count; ++i, ++next) {
      const int32_t p = order[static_cast<size_t>(next)];
      ASSERT_TRUE(p >= 0 && p < pairs && seen.insert(p).second) << p;
      const int32_t id = ids[static_cast<size_t>(p)];
      ASSERT_EQ(id >= 0 && id < experts ? id : -1, tile.expert);
    }
  }
  EXPECT_EQ(next, pairs);
}

TEST(ExpertSort, EveryRowIsInATileOfItsExpert) {
  std::mt19937 random(51);
  const auto some = [&](int pairs, int low, int high) {
    std::vector<int32_t> ids(static_cast<size_t>(pairs));
    for (int32_t& id : ids)
      id = low + static_cast<int32_t>(random() % static_cast<uint32_t>(high - low));
    return ids;
  };
  CheckSort(16384, 256, 128, some(16384, 0, 256));
  CheckSort(9000, 64, 64, some(9000, -2, 66));
  CheckSort(5000, 1024, 16, some(5000, 0, 1025));
  CheckSort(3000, 1023, 16, some(3000, 500, 520));
  CheckSort(2000, 8, 16, some(2000, 3, 4));  // everybody the same
  CheckSort(700, 5, 64, some(700, 5, 6));    // nobody
  CheckSort(1, 1, 16, {0});
}

TEST(ExpertSum, IsWeightedAtEveryWidth) {
  constexpr int kSummed = 7;
  std::vector<float> weights(kTokens * kSummed);
  for (size_t i = 0; i < weights.size(); ++i) weights[i] = static_cast<float>(i % 5) - 1.5f;
  for (const DType type : kTypes) {
    for (const int64_t width : {1, 8, 13, 64, 129}) {
      for (const bool gap : {false, true}) {
        for (const bool packed : {false, true}) {
          const int64_t pitch = width + (gap ? (packed ? 8 : 1) : 0);
          if (packed && width % 8 != 0) continue;
          SCOPED_TRACE(fmt::format("{} {} {} {}", ir::Name(type), width, gap, packed));
          Values x(type, kTokens * kSummed, width, pitch, 61),
              y(type, kTokens + 1, width, pitch, 62);
          const Header header = Tokens(kTokens);
          ExpertSumArgs a;
          a.header = &header;
          a.x = x.view();
          a.y = y.view();
          a.weights = weights.data();
          a.count = PerToken();
          a.chosen = kSummed;
          a.width = static_cast<int32_t>(width);
          a.packed = packed ? 1 : 0;
          const int64_t chunk = 16 / x.bytes;
          const int64_t threads = (kTokens + 1) * ((width + chunk - 1) / chunk);
          RunKernel(
              fmt::format("expert_sum_{}", ir::Name(type)), a,
              {.grid_x = static_cast<int>((threads + kExpertSumThreads - 1) / kExpertSumThreads),
               .threads = kExpertSumThreads});
          for (int64_t i = 0; i < width; ++i) {
            for (int t = 0; t < kTokens; ++t) {
              double want = 0;
              for (int p = t * kSummed; p < (t + 1) * kSummed; ++p)
                want += weights[static_cast<size_t>(p)] * x.at(p, i);
              ASSERT_NEAR(y.at(t, i), want, Near(type, want)) << t << ", " << i;
            }
            ASSERT_EQ(y.at(kTokens, i), y.values[static_cast<size_t>(kTokens * width + i)]);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace vt::gpu
