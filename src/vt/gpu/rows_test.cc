// The row kernels on the emulated device, at edges that the op table does not reach: rows at odd
// addresses, values of two types, rows from one value to a vocabulary, steps smaller than their
// bucket. Each result is held against plain loops in double.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <deque>
#include <functional>
#include <random>
#include <vector>

#include "base/strings.h"
#include "vt/gpu/args_rows.h"
#include "vt/gpu/context.h"
#include "vt/gpu/kernel_testing.h"
#include "vt/gpu/rows_work.h"
#include "vt/ir/quant.h"

namespace vt::gpu {
namespace {

using ir::DType;

constexpr std::byte kUntouched{0x5b};  // a finite value in every type

// How rows stand in memory.
struct Stand {
  int offset = 0;  // values before the first row: 1 makes every row odd
  int inner = 1;
  int gap = 0;  // values between groups of `inner` rows
};

// Rows in memory, with what is around them.
class Values {
 public:
  Values(DType type, int rows, int width, Stand s = {})
      : type_(type), rows_(rows), width_(width), s_(s) {
    const int groups = (rows + s.inner - 1) / s.inner;
    count_ = s.offset + groups * stride() + 64;
    // Aligned to 16 bytes as memory of a device is.
    bytes_.assign(static_cast<size_t>(count_ * size() + 16), kUntouched);
    base_ = bytes_.data() + (16 - reinterpret_cast<uintptr_t>(bytes_.data()) % 16);
  }
  Values(const Values&) = delete;

  View view() {
    View v;
    v.rows = {base_ + s_.offset * size(), stride(), s_.inner, width_};
    v.f32 = type_ == DType::kF32 ? 1 : 0;
    return v;
  }
  double at(int row, int i) const {
    float f = 0;
    ir::Dequantize(type_, place(row, i), &f, 1);
    return f;
  }
  void set(int row, int i, float f) { ir::Quantize(type_, &f, place(row, i), 1); }
  void fill(uint32_t seed, float scale = 1) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (int r = 0; r < rows_; ++r) {
      for (int i = 0; i < width_; ++i) set(r, i, scale * normal(random));
    }
  }
  void Clear() { std::fill(bytes_.begin(), bytes_.end(), kUntouched); }
  int rows() const { return rows_; }
  int width() const { return width_; }
  // Of one value's rounding.
  double ulp() const {
    return type_ == DType::kF32 ? 0 : type_ == DType::kBF16 ? 1.0 / 256 : 1.0 / 2048;
  }
  // Whether nothing but the first `written` rows was written.
  bool RestUntouched(int written) const {
    std::vector<bool> mine(static_cast<size_t>(count_));
    for (int r = 0; r < written; ++r) {
      for (int i = 0; i < width_; ++i)
        mine[static_cast<size_t>((place(r, i) - base_) / size())] = true;
    }
    for (int64_t v = 0; v < count_; ++v) {
      for (int64_t b = 0; b < size() && !mine[static_cast<size_t>(v)]; ++b) {
        if (base_[v * size() + b] != kUntouched) return false;
      }
    }
    return true;
  }

 private:
  int64_t size() const { return ir::Info(type_).bytes; }
  int64_t stride() const { return int64_t{s_.inner} * width_ + s_.gap; }
  std::byte* place(int row, int i) const {
    return base_ +
           (s_.offset + row / s_.inner * stride() + int64_t{row % s_.inner} * width_ + i) * size();
  }

  DType type_;
  int rows_, width_;
  Stand s_;
  int64_t count_ = 0;
  std::vector<std::byte> bytes_;
  std::byte* base_ = nullptr;
};

std::vector<float> Vector(int size, uint32_t seed, float mean = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(mean, 0.3f);
  std::vector<float> v(static_cast<size_t>(size));
  for (float& f : v) f = normal(random);
  return v;
}

int64_t ChunksOf(DType t, int width) {
  const int chunk = 16 / ir::Info(t).bytes;
  return (width + chunk - 1) / chunk;
}

// Endings of the kernels that may run on these views: "", and "_plain" as args_rows.h says. Vectors
// of weights are aligned here.
std::vector<std::string> Kinds(DType t, int width, std::initializer_list<View> views) {
  const int64_t bytes = ir::Info(t).bytes;
  bool plain = width * bytes % 16 == 0;
  for (const View& v : views) {
    plain &= (v.f32 != 0) == (t == DType::kF32) &&
             reinterpret_cast<uintptr_t>(v.rows.base) % 16 == 0 && v.rows.stride * bytes % 16 == 0;
  }
  return plain ? std::vector<std::string>{"", "_plain"} : std::vector<std::string>{""};
}

// Runs `kernel` of type T on a step of `rows` tokens.
template <class Args>
void RunKernel(const std::string& kernel, DType t, Args args, const DealtRows& dealt, int rows,
               int width, int shared_bytes = 0) {
  const Header header{rows, 1, 1, 0};
  args.work = {&header, {Of::kTokens, 1}, width, dealt.lane_bits, dealt.blocks};
  kernel_testing::RunKernel(kernel + "_" + std::string(ir::Name(t)), args,
                            {.grid_x = static_cast<int>(dealt.grid),
                             .threads = static_cast<int>(dealt.threads),
                             .shared_bytes = shared_bytes});
}

// The first `rows` rows of y are `want(row, i)`, to `tolerance` of the row's largest value and the
// type's rounding; nothing else was written.
void Expect(const Values& y, int rows, const std::function<double(int, int)>& want,
            double tolerance, const std::string& what) {
  for (int r = 0; r < rows; ++r) {
    double largest = 1e-30, error = 0;
    for (int i = 0; i < y.width(); ++i) {
      const double w = want(r, i), got = y.at(r, i);
      if (std::isfinite(w)) largest = std::max(largest, std::fabs(w));
      if (w == got) continue;
      error = std::isfinite(w) && std::isfinite(got) ? std::max(error, std::fabs(w - got))
                                                     : std::numeric_limits<double>::infinity();
    }
    ASSERT_LE(error, (tolerance + y.ulp()) * largest) << what << ", row " << r;
  }
  ASSERT_TRUE(y.RestUntouched(rows)) << what << ": wrote outside of its rows";
}

struct Types {
  DType t, x, y;
};
// Each kernel with its own type on both sides, and f32 on either.
std::vector<Types> AllTypes() {
  std::vector<Types> all = {{DType::kF32, DType::kF32, DType::kF32}};
  for (const DType t : {DType::kBF16, DType::kF16}) {
    all.push_back({t, t, t});
    all.push_back({t, t, DType::kF32});
    all.push_back({t, DType::kF32, t});
  }
  return all;
}
std::string Describe(const Types& t, int width, const Stand& s) {
  return fmt::format("{} {}->{} width {} offset {} inner {} gap {}", ir::Name(t.t), ir::Name(t.x),
                     ir::Name(t.y), width, s.offset, s.inner, s.gap);
}
// Aligned, at odd addresses, heads of tokens in a wider row.
const Stand kStands[] = {{0, 1, 0}, {1, 1, 0}, {0, 1, 24}, {8, 3, 16}, {3, 3, 5}};

TEST(RowsMap, AddsRowsOfAnyWidthAddressAndType) {
  for (const Types& t : AllTypes()) {
    for (const int width : {1, 3, 7, 8, 9, 64, 100, 257, 2048, 2056, 4100}) {
      for (const Stand& s : kStands) {
        Values x(t.x, 7, width, s), b(t.t, 7, width, {}), y(t.y, 7, width, s);
        x.fill(1);
        b.fill(2);
        RowsMapArgs a;
        a.x = x.view();
        a.b = b.view();
        a.y = y.view();
        a.binary = RowBinary::kAdd;
        for (const std::string& kind : Kinds(t.t, width, {a.x, a.b, a.y})) {
          y.Clear();
          ASSERT_NO_FATAL_FAILURE(
              RunKernel("rows_map" + kind, t.t, a, DealChunks(7, ChunksOf(t.t, width)), 5, width));
          ASSERT_NO_FATAL_FAILURE(Expect(
              y, 5, [&](int r, int i) { return x.at(r, i) + b.at(r, i); }, 1e-6,
              Describe(t, width, s) + kind));
        }
      }
    }
  }
}

TEST(RowsMap, ACopyKeepsTheBitsOfIntegers) {
  Values x(DType::kF32, 3, 9), y(DType::kF32, 3, 9);
  // A signalling NaN, a denormal, minus one.
  const uint32_t odd[] = {0x7f800001u, 1u, 0xffffffffu};
  for (int r = 0; r < 3; ++r) {
    for (int i = 0; i < 9; ++i)
      std::memcpy(static_cast<float*>(x.view().rows.base) + 9 * r + i, &odd[(r + i) % 3], 4);
  }
  RowsMapArgs a;
  a.x = x.view();
  a.y = y.view();
  ASSERT_NO_FATAL_FAILURE(RunKernel("rows_map", DType::kF32, a, DealChunks(3, 3), 3, 9));
  EXPECT_EQ(std::memcmp(x.view().rows.base, y.view().rows.base, 4 * 27), 0);
}

TEST(RowsMap, AVectorIsAddedToEveryRow) {
  const std::vector<float> v = Vector(40, 3);
  Values x(DType::kBF16, 4, 40), y(DType::kBF16, 4, 40);
  x.fill(1);
  RowsMapArgs a;
  a.x = x.view();
  a.y = y.view();
  a.b = {{const_cast<float*>(v.data()), 0, 1, 40}, 1};
  a.binary = RowBinary::kMul;
  ASSERT_NO_FATAL_FAILURE(RunKernel("rows_map", DType::kBF16, a, DealChunks(4, 5), 4, 40));
  Expect(
      y, 4, [&](int r, int i) { return x.at(r, i) * v[static_cast<size_t>(i)]; }, 1e-6,
      "row vector");
}

TEST(RowsMap, TakesTheRowsOfAnIndexAndZerosWhereThereIsNone) {
  for (const Types& t : AllTypes()) {
    for (const int width : {5, 64, 3000}) {
      Values table(t.x, 6, width, {0, 1, width == 64 ? 32 : 27}), y(t.y, 5, width);
      table.fill(1);
      const std::vector<int32_t> index = {5, 0, -1, 6, 3};
      RowsMapArgs a;
      a.x = table.view();
      a.y = y.view();
      a.index = index.data();
      a.index_rows = 6;
      for (const std::string& kind : Kinds(t.t, width, {a.x, a.y})) {
        y.Clear();
        ASSERT_NO_FATAL_FAILURE(
            RunKernel("rows_map" + kind, t.t, a, DealChunks(5, ChunksOf(t.t, width)), 5, width));
        ASSERT_NO_FATAL_FAILURE(Expect(
            y, 5,
            [&](int r, int i) {
              const int32_t from = index[static_cast<size_t>(r)];
              return from < 0 || from > 5 ? 0 : table.at(from, i);
            },
            0, Describe(t, width, {}) + kind));
      }
    }
  }
}

// Values whose function is known to more digits than f32 has.
TEST(RowsMap, FunctionsAreRightInTheirTails) {
  const std::vector<float> points = {-100, -20, -8, -3, -1, -1e-3f, 0, 1e-4f, 0.5f, 2, 9, 21, 88};
  const auto width = static_cast<int>(points.size());
  struct Case {
    RowFn fn;
    double (*want)(double);
    double relative, absolute;  // gelu ends in 1 + erf, which has no digits left below -3
  };
  const Case cases[] = {
      {RowFn::kSilu, [](double x) { return x / (1 + std::exp(-x)); }, 1e-6, 1e-37},
      {RowFn::kSigmoid, [](double x) { return 1 / (1 + std::exp(-x)); }, 1e-6, 1e-37},
      {RowFn::kSoftplus, [](double x) { return std::log1p(std::exp(x)); }, 7e-5, 1e-37},
      {RowFn::kGelu, [](double x) { return 0.5 * x * std::erfc(-x / std::sqrt(2.0)); }, 1e-6, 1e-6},
      {RowFn::kGeluTanh,
       [](double x) {
         return x /
                (1 + std::exp(-2 * std::sqrt(2 / 3.14159265358979) * (x + 0.044715 * x * x * x)));
       },
       1e-6, 1e-6},
      {RowFn::kTanh, [](double x) { return std::tanh(x); }, 1e-6, 1e-37},
      {RowFn::kExp, [](double x) { return std::exp(x); }, 1e-6, 1e-37},
      {RowFn::kRelu, [](double x) { return x > 0 ? x : 0; }, 0, 0},
      {RowFn::kSquaredRelu, [](double x) { return x > 0 ? x * x : 0; }, 1e-7, 0},
      {RowFn::kScale, [](double x) { return x * 0.5 - 3; }, 1e-7, 1e-6},
      {RowFn::kSoftCap, [](double x) { return -3 * std::tanh(x / 2); }, 1e-6, 1e-37},
  };
  Values x(DType::kF32, 1, width);
  for (int i = 0; i < width; ++i) x.set(0, i, points[static_cast<size_t>(i)]);
  for (const Case& c : cases) {
    Values y(DType::kF32, 1, width);
    RowsMapArgs a;
    a.x = x.view();
    a.y = y.view();
    a.fn = c.fn;
    a.p = 0.5f;
    a.q = -3;
    ASSERT_NO_FATAL_FAILURE(RunKernel("rows_map", DType::kF32, a, DealChunks(1, 4), 1, width));
    for (int i = 0; i < width; ++i) {
      const double want = c.want(x.at(0, i));
      EXPECT_NEAR(y.at(0, i), want, c.relative * std::fabs(want) + c.absolute)
          << "function " << static_cast<int>(c.fn) << " of " << x.at(0, i);
    }
  }
}

// (x + add - mean) / deviation * (w + offset) + bias + residual
void CheckNorm(const Types& t, int width, const Stand& s, bool centre, bool add, bool residual) {
  const std::string what = Describe(t, width, s) + fmt::format(" {}{}{}", centre, add, residual);
  Values x(t.x, 6, width, s), b(t.t, 6, width), r(t.t, 6, width), sum(t.y, 6, width, s),
      y(t.y, 6, width);
  x.fill(1, 3);
  b.fill(2);
  r.fill(3);
  const std::vector<float> w = Vector(width, 4), bias = Vector(width, 5, 0);
  RowsNormArgs a;
  a.x = x.view();
  a.y = y.view();
  a.w = w.data();
  a.eps = 1e-5f;
  a.offset = 0.25f;
  if (centre) {
    a.centre = 1;
    a.bias = bias.data();
  }
  if (add) {
    a.add = b.view();
    a.sum = sum.view();
  }
  if (residual) a.residual = r.view();
  const auto total = [&](int row, int i) { return x.at(row, i) + (add ? b.at(row, i) : 0); };
  std::vector<double> mean(6), scale(6);
  for (int row = 0; row < 6; ++row) {
    double sums = 0, squares = 0;
    for (int i = 0; i < width && centre; ++i) sums += total(row, i);
    mean[static_cast<size_t>(row)] = sums / width;
    for (int i = 0; i < width; ++i) squares += std::pow(total(row, i) - sums / width, 2);
    scale[static_cast<size_t>(row)] = 1 / std::sqrt(squares / width + 1e-5);
  }
  const auto want = [&](int row, int i) {
    const auto k = static_cast<size_t>(row), j = static_cast<size_t>(i);
    return (total(row, i) - mean[k]) * scale[k] * (double{w[j]} + 0.25) + (centre ? bias[j] : 0) +
           (residual ? r.at(row, i) : 0);
  };
  for (const std::string& kind : Kinds(t.t, width, {a.x, a.y})) {
    y.Clear();
    sum.Clear();
    ASSERT_NO_FATAL_FAILURE(RunKernel("rows_norm" + kind, t.t, a,
                                      DealWhole(6, ChunksOf(t.t, width), kRowsNormThreads), 5,
                                      width, kRowsSharedBytes));
    ASSERT_NO_FATAL_FAILURE(Expect(y, 5, want, 4e-6, what + kind));
    if (!add) continue;
    ASSERT_NO_FATAL_FAILURE(Expect(sum, 5, total, 1e-6, what + kind + " sum"));
  }
}

TEST(RowsNorm, RowsOfAnyWidthAddressAndType) {
  for (const Types& t : AllTypes()) {
    for (const int width : {2, 7, 8, 33, 64, 128, 255, 256, 264, 1000}) {
      for (const Stand& s : kStands)
        ASSERT_NO_FATAL_FAILURE(CheckNorm(t, width, s, false, false, false));
    }
  }
}

TEST(RowsNorm, WhatIsFusedBeforeAndBehind) {
  for (const Types& t : AllTypes()) {
    for (const int width : {7, 128, 1000}) {
      for (int parts = 1; parts < 8; ++parts) {
        ASSERT_NO_FATAL_FAILURE(
            CheckNorm(t, width, {8, 3, 16}, (parts & 1) != 0, (parts & 2) != 0, (parts & 4) != 0));
      }
    }
  }
}

// 8192 values of 16 bits, 4096 of f32 stay in registers; what is behind is read again.
TEST(RowsNorm, RowsThatDoNotFitInRegisters) {
  for (const Types& t : AllTypes()) {
    for (const int width : {4104, 8192, 8715}) {
      ASSERT_NO_FATAL_FAILURE(CheckNorm(t, width, {}, false, true, false));
      ASSERT_NO_FATAL_FAILURE(CheckNorm(t, width, {1, 1, 0}, true, true, true));
    }
  }
}

void CheckSoftmax(const Types& t, Values& x, Values& y, bool logarithm) {
  RowsSoftmaxArgs a;
  a.x = x.view();
  a.y = y.view();
  a.logarithm = logarithm ? 1 : 0;
  const int rows = x.rows() - 1;
  ASSERT_NO_FATAL_FAILURE(RunKernel(
      "rows_softmax", t.t, a, DealWhole(x.rows(), ChunksOf(t.t, x.width()), kRowsSoftmaxThreads),
      rows, x.width(), kRowsSharedBytes));
  std::vector<double> high, sum;
  for (int r = 0; r < rows; ++r) {
    double most = -std::numeric_limits<double>::infinity(), s = 0;
    for (int i = 0; i < x.width(); ++i) most = std::max(most, x.at(r, i));
    for (int i = 0; i < x.width(); ++i) s += std::exp(x.at(r, i) - most);
    high.push_back(most);
    sum.push_back(s);
  }
  Expect(
      y, rows,
      [&](int r, int i) {
        const auto k = static_cast<size_t>(r);
        if (std::isinf(high[k])) return logarithm ? high[k] : 0;
        const double d = x.at(r, i) - high[k];
        return logarithm ? d - std::log(sum[k]) : std::exp(d) / sum[k];
      },
      4e-6, fmt::format("{} width {}", ir::Name(t.t), x.width()));
}

TEST(RowsSoftmax, RowsOfAnyWidthAddressAndType) {
  for (const Types& t : AllTypes()) {
    for (const int width : {1, 2, 7, 8, 33, 256, 257, 3000}) {
      for (const Stand& s : kStands) {
        for (const bool logarithm : {false, true}) {
          Values x(t.x, 4, width, s), y(t.y, 4, width, s);
          x.fill(1, 4);
          ASSERT_NO_FATAL_FAILURE(CheckSoftmax(t, x, y, logarithm));
        }
      }
    }
  }
}

TEST(RowsSoftmax, AVocabularyInOneBlock) {
  const Types t{DType::kF32, DType::kF32, DType::kF32};
  for (const bool logarithm : {false, true}) {
    Values x(t.x, 2, 300001, {1, 1, 0}), y(t.y, 2, 300001, {3, 1, 0});
    x.fill(1, 4);
    ASSERT_NO_FATAL_FAILURE(CheckSoftmax(t, x, y, logarithm));
  }
}

TEST(RowsSoftmax, ForbiddenValuesAreZerosAndNeverNaN) {
  const Types t{DType::kF32, DType::kF32, DType::kF32};
  for (const int width : {9, 5000}) {
    for (const bool logarithm : {false, true}) {
      Values x(t.x, 4, width), y(t.y, 4, width);
      x.fill(1, 4);
      // All but the last, all, and every second.
      for (int i = 0; i < width; ++i) {
        if (i + 1 < width) x.set(0, i, -INFINITY);
        x.set(1, i, -INFINITY);
        if (i % 2 == 0) x.set(2, i, -INFINITY);
      }
      ASSERT_NO_FATAL_FAILURE(CheckSoftmax(t, x, y, logarithm));
    }
  }
}

struct Rotation {
  int dim, rotary;
  bool interleaved;
};

void CheckRope(const Types& t, const Rotation& k, const Stand& s, bool norm) {
  constexpr int kTokens = 5, kPositions = 9;
  const int heads = s.inner, rows = kTokens * heads, half = k.rotary / 2;
  Values x(t.x, rows, k.dim, s), y(t.y, rows, k.dim);
  x.fill(1);
  const std::vector<int32_t> positions = {3, 0, 8, 100, 7};  // 100: past the table, as its last
  std::vector<float> table(static_cast<size_t>(kPositions * half * 2 + 2));
  for (int i = 0; i < kPositions * half; ++i) {
    table[static_cast<size_t>(2 * i)] = static_cast<float>(std::cos(0.1 * i));
    table[static_cast<size_t>(2 * i + 1)] = static_cast<float>(std::sin(0.1 * i));
  }
  const std::vector<float> w = Vector(k.dim, 2);
  RowsRopeArgs a;
  a.x = x.view();
  a.y = y.view();
  a.positions = positions.data();
  a.table = table.data();
  a.table_positions = kPositions;
  a.heads = heads;
  a.half = half;
  a.interleaved = k.interleaved ? 1 : 0;
  if (norm) a.w = w.data();
  a.eps = 1e-6f;
  a.offset = 1;
  std::vector<double> scales;
  for (int r = 0; r < rows; ++r) {
    double squares = 0;
    for (int j = 0; j < k.dim; ++j) squares += x.at(r, j) * x.at(r, j);
    scales.push_back(1 / std::sqrt(squares / k.dim + 1e-6));
  }
  const auto want = [&](int r, int i) {
    const double scale = scales[static_cast<size_t>(r)];
    const auto value = [&](int j) {
      return norm ? x.at(r, j) * scale * (double{w[static_cast<size_t>(j)]} + 1) : x.at(r, j);
    };
    if (i >= k.rotary) return value(i);
    const int pair = k.interleaved ? i / 2 : i % half;
    const bool second = k.interleaved ? i % 2 != 0 : i >= half;
    const int p = std::min(positions[static_cast<size_t>(r / heads)], kPositions - 1);
    const auto turn = static_cast<size_t>(2 * (p * half + pair));
    const double c = table[turn], si = table[turn + 1];
    const double low = value(k.interleaved ? 2 * pair : pair);
    const double high = value(k.interleaved ? 2 * pair + 1 : pair + half);
    return second ? high * c + low * si : low * c - high * si;
  };
  const int chunk = 16 / ir::Info(t.t).bytes;
  for (const std::string& kind : Kinds(t.t, k.dim, {a.x, a.y})) {
    if (!kind.empty() && (half % chunk != 0 || (k.dim - k.rotary) % (2 * chunk) != 0)) continue;
    y.Clear();
    ASSERT_NO_FATAL_FAILURE(RunKernel("rows_rope" + kind, t.t, a,
                                      DealHeads(rows, ChunksOf(t.t, k.dim)), rows - 1, k.dim));
    ASSERT_NO_FATAL_FAILURE(Expect(
        y, rows - 1, want, 2e-6,
        Describe(t, k.dim, s) + fmt::format(" rotary {} {}", k.rotary, k.interleaved) + kind));
  }
}

TEST(RowsRope, HeadsOfAnySizeRotationAndType) {
  for (const Types& t : AllTypes()) {
    for (const auto& [dim, rotary] : std::vector<std::pair<int, int>>{{2, 2},
                                                                      {7, 4},
                                                                      {32, 32},
                                                                      {64, 0},
                                                                      {80, 20},
                                                                      {96, 72},
                                                                      {100, 64},
                                                                      {128, 128},
                                                                      {256, 64},
                                                                      {1024, 1024},
                                                                      {1100, 12}}) {
      for (const bool interleaved : {false, true}) {
        for (const Stand& s : {Stand{0, 1, 0}, Stand{8, 3, 16}, Stand{3, 2, 5}}) {
          for (const bool norm : {false, true})
            ASSERT_NO_FATAL_FAILURE(CheckRope(t, {dim, rotary, interleaved}, s, norm));
        }
      }
    }
  }
}

TEST(RopeTable, HoldsTheCosineAndSineOfAngleInF32TimesTheMagnitude) {
  ir::RopeAttrs attrs;
  attrs.rotary_dim = 4;
  attrs.magnitude = 2;
  attrs.frequencies = {1, 0.3f};
  const std::vector<float> table = RopeTable(attrs, 100001);
  ASSERT_EQ(table.size(), 4u * 100001);
  EXPECT_EQ(table[0], 2);  // position 0: cos 0, sin 0
  EXPECT_EQ(table[1], 0);
  EXPECT_FLOAT_EQ(table[4], static_cast<float>(2 * std::cos(1.0)));
  EXPECT_FLOAT_EQ(table[7], static_cast<float>(2 * std::sin(double{0.3f})));
  // 100000 x 0.3f is 30000.0012 but 30000.002 as f32: the models' own code has the latter.
  EXPECT_FLOAT_EQ(table[4 * 100000 + 3], static_cast<float>(2 * std::sin(double{100000 * 0.3f})));
}

// A graph with block tables of these widths.
ir::Plan PlanWithTables(const std::vector<int64_t>& widths) {
  ir::Plan plan;
  plan.bucket = {.tokens = 8, .requests = 2, .outputs = 2};
  for (size_t g = 0; g < widths.size(); ++g) {
    ir::Value v;
    v.name = ir::BlockTableName(static_cast<int>(g));
    v.dtype = DType::kI32;
    v.shape = {ir::R(), ir::Dim(widths[g])};
    v.kind = ir::ValueKind::kInput;
    plan.graph.values.push_back(std::move(v));
  }
  return plan;
}

struct Compiling {
  explicit Compiling(ir::Plan p) : plan(std::move(p)), layout(plan.graph, plan.bucket) {
    bindings.block_size = 16;
  }
  Context context() {
    return {plan,
            bindings,
            layout,
            device,
            [this](const void* data, int64_t bytes) -> base::Result<void*> {
              if (bytes > most_bytes) return base::Error{base::Code::kResourceExhausted, "full"};
              const auto* f = static_cast<const float*>(data);
              uploads.emplace_back(f, f + bytes / 4);
              return uploads.back().data();
            },
            launches,
            status,
            &tables};
  }
  ir::Plan plan;
  Bindings bindings;
  StepLayout layout;
  DeviceFacts device;
  std::vector<Launch> launches;
  base::Status status;
  RopeTables tables;
  int64_t most_bytes = 1 << 30;
  std::deque<std::vector<float>> uploads;
};

TEST(RopeTable, CoversWhatTheLargestBlockTableHolds) {
  Compiling c(PlanWithTables({10, 40, 20}));
  EXPECT_EQ(MostPositions(c.context()), 640);
}

TEST(RopeTable, IsMadeOncePerRotation) {
  Compiling c(PlanWithTables({4}));
  ir::RopeAttrs a, b;
  a.rotary_dim = b.rotary_dim = 2;
  a.frequencies = {1};
  b.frequencies = {0.5f};
  const Context context = c.context();
  const float* first = RopeTableOf(context, a);
  EXPECT_EQ(RopeTableOf(context, a), first);
  EXPECT_NE(RopeTableOf(context, b), first);
  EXPECT_EQ(c.uploads.size(), 2u);
  EXPECT_EQ(c.uploads[0].size(), 2u * 64);
  // Longer requests need a longer one; shorter ones do not.
  Compiling longer(PlanWithTables({5})), shorter(PlanWithTables({3}));
  longer.tables = shorter.tables = c.tables;
  (void)RopeTableOf(longer.context(), a);
  EXPECT_EQ(longer.uploads.size(), 1u);
  EXPECT_EQ(RopeTableOf(shorter.context(), a), first);
  EXPECT_TRUE(c.status && longer.status && shorter.status);
}

TEST(RopeTable, WithoutMemoryIsTheCompilationsError) {
  Compiling c(PlanWithTables({4}));
  c.most_bytes = 100;
  ir::RopeAttrs a;
  a.rotary_dim = 2;
  a.frequencies = {1};
  EXPECT_EQ(RopeTableOf(c.context(), a), nullptr);
  ASSERT_FALSE(c.status);
  EXPECT_EQ(c.status.error().message, "full");
  EXPECT_TRUE(c.tables.made.empty());
}

}  // namespace
}  // namespace vt::gpu
