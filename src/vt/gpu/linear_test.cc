// Linears on the emulated device, from node to result: every kernel and form, at sizes, addresses
// and counts that the op table does not reach. Each result is held against plain loops in double.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "base/strings.h"
#include "vt/gpu/context.h"
#include "vt/gpu/emulated/launch.h"
#include "vt/gpu/kernel_testing.h"
#include "vt/gpu/linear_plan.h"
#include "vt/ir/quant.h"

namespace vt::gpu {
namespace {

using ir::DType;
using ir::Op;

DeviceFacts Device(DType type, int units = 2, bool cuda = false, bool early = false) {
  DeviceFacts d;
  d.properties.early_launch = early;
  d.properties.wave = emulated::WaveSize();
  d.properties.units = units;
  d.properties.shared_bytes = cuda ? 227 << 10 : 64 << 10;
  d.value_type = type;
  d.cuda = cuda;
  d.stream_bytes = 0;
  return d;
}

struct Form {
  Op op = Op::kLinear;
  DType type = DType::kBF16;
  int bucket = 1, tokens = 1;  // rows of the plan, of the step
  int k = 64;
  std::vector<int> segments = {16};
  bool bias = false, f32_out = false;
  int x_offset = 0;    // values before the first row of x: 1 makes all of them odd
  int x_gap = 0;       // values between rows of x
  int units = 2;       // multiprocessors
  bool cuda = false;   // what only CUDA is asked for
  bool early = false;  // launches may begin early
};

std::string Describe(const Form& f) {
  std::string s = fmt::format("{} {} tokens {}/{} k {} bias {} f32 {} offset {} gap {} units {} n",
                              ir::Name(f.op), ir::Name(f.type), f.tokens, f.bucket, f.k, f.bias,
                              f.f32_out, f.x_offset, f.x_gap, f.units);
  for (const int n : f.segments) s += fmt::format(" {}", n);
  return s;
}

bool IsActMul(Op op) {
  return op == Op::kLinearActMul || op == Op::kRmsNormLinearActMul ||
         op == Op::kNormAddNormLinearActMul;
}
bool HasNorm(Op op) { return op == Op::kRmsNormLinear || op == Op::kRmsNormLinearActMul; }
bool HasSandwich(Op op) {
  return op == Op::kNormAddNormLinear || op == Op::kNormAddNormLinearActMul;
}

constexpr float kOffset1 = 1, kOffset2 = 0.5f, kEps1 = 1e-5f, kEps2 = 1e-6f;

// A plan of one node, with its memory.
class OneNode {
 public:
  explicit OneNode(const Form& form) : f_(form) {
    plan_.bucket = {.tokens = f_.bucket, .requests = 1, .outputs = 1};
    ir::Node node;
    node.op = f_.op;
    node.name = "n";
    x_ = Rows("x", f_.k, f_.type, f_.x_offset, f_.x_gap);
    node.inputs.push_back(x_);
    if (HasNorm(f_.op) || HasSandwich(f_.op)) node.inputs.push_back(w1_ = Vector("w1", f_.k));
    if (HasSandwich(f_.op)) {
      node.inputs.push_back(r_ = Rows("r", f_.k, f_.type));
      node.inputs.push_back(w2_ = Vector("w2", f_.k));
    }
    int width = 0;
    for (size_t i = 0; i < f_.segments.size(); ++i) {
      width += f_.segments[i];
      w_.push_back(Matrix(fmt::format("W{}", i), f_.segments[i], f_.k));
      node.inputs.push_back(w_.back());
    }
    for (size_t i = 0; i < f_.segments.size() && f_.bias; ++i) {
      b_.push_back(Vector(fmt::format("b{}", i), f_.segments[i]));
      node.inputs.push_back(b_.back());
    }
    if (IsActMul(f_.op)) width = f_.segments[0];
    if (f_.op == Op::kLinearAdd) node.inputs.push_back(r_ = Rows("r", width, f_.type));
    if (HasSandwich(f_.op)) node.outputs.push_back(s_ = Rows("s", f_.k, f_.type));
    y_ = Rows("y", width, f_.f32_out ? DType::kF32 : f_.type);
    node.outputs.push_back(y_);
    node.attrs = AttrsOf();
    plan_.graph.nodes.push_back(node);
    Fill();
  }

  bool Supported() const {
    return SupportsLinear(plan_.graph, plan_.graph.nodes[0], plan_.bucket,
                          Device(f_.type, f_.units, f_.cuda, f_.early));
  }

  void Run() {
    SCOPED_TRACE(Describe(f_));
    const Header header{f_.tokens, 1, 1, 0};
    bindings_.arena = arena();
    bindings_.inputs = const_cast<Header*>(&header);
    const StepLayout layout(plan_.graph, plan_.bucket);
    const DeviceFacts device = Device(f_.type, f_.units, f_.cuda, f_.early);
    std::vector<Launch> launches;
    base::Status status;
    const Context c = {plan_,
                       bindings_,
                       layout,
                       device,
                       [](const void*, int64_t) { return base::Result<void*>(nullptr); },
                       launches,
                       status};
    CompileLinear(c, 0);
    ASSERT_TRUE(status) << status.error().message;
    ASSERT_FALSE(launches.empty());
    kernel_ = launches.back().kernel;
    SCOPED_TRACE(kernel_);
    ASSERT_NO_FATAL_FAILURE(kernel_testing::RunAll(launches));
    Check();
  }

  const std::string& kernel() const { return kernel_; }

 private:
  static constexpr int kSpace = 128;  // bytes around every value, which nobody may write

  ir::ValueId NewValue(const std::string& name, DType type, ir::Shape shape, ir::ValueKind kind) {
    ir::Value v;
    v.name = name;
    v.dtype = type;
    v.shape = std::move(shape);
    v.kind = kind;
    if (kind == ir::ValueKind::kNode && name == "y") v.producer = 0;
    plan_.graph.values.push_back(v);
    plan_.memory.places.emplace_back();
    return static_cast<ir::ValueId>(plan_.graph.values.size() - 1);
  }
  ir::ValueId Rows(const std::string& name, int width, DType type, int offset = 0, int gap = 0) {
    const ir::ValueId id = NewValue(name, type, {ir::T(), width}, ir::ValueKind::kInput);
    plan_.graph.values.back().kind = ir::ValueKind::kNode;
    plan_.graph.values.back().producer = -1;
    const int64_t bytes = ir::Info(type).bytes;
    ir::Placement& p = plan_.memory.places.back();
    p.buffer = id;
    p.offset = end_ + kSpace + offset * bytes;
    p.row_stride = width + gap;
    end_ = (p.offset + p.row_stride * f_.bucket * bytes + kSpace + 63) / 64 * 64;
    return id;
  }
  ir::ValueId Vector(const std::string& name, int size) {
    const ir::ValueId id = NewValue(name, DType::kF32, {size}, ir::ValueKind::kWeight);
    std::vector<float>& v = vectors_.emplace_back();
    vectors_.back().reserve(4096);
    std::normal_distribution<float> normal(0.5f, 0.3f);
    for (int i = 0; i < size; ++i) v.push_back(normal(random_));
    vector_of_[id] = vectors_.size() - 1;
    return id;
  }
  ir::ValueId Matrix(const std::string& name, int rows, int columns) {
    const ir::ValueId id = NewValue(name, f_.type, {rows, columns}, ir::ValueKind::kWeight);
    const int64_t bytes = ir::Info(f_.type).bytes, pitch = PitchOf(columns);
    std::vector<float> row(static_cast<size_t>(pitch));
    matrices_.emplace_back(static_cast<size_t>(rows * pitch * bytes + 16));
    matrix_of_[id] = matrices_.size() - 1;
    std::normal_distribution<float> normal;
    for (int r = 0; r < rows; ++r) {
      for (int i = 0; i < columns; ++i) row[static_cast<size_t>(i)] = normal(random_);
      ir::Quantize(f_.type, row.data(), MatrixData(id) + r * pitch * bytes, pitch);
    }
    return id;
  }
  std::byte* MatrixData(ir::ValueId id) {
    std::byte* p = matrices_[matrix_of_[id]].data();
    return p + (16 - reinterpret_cast<uintptr_t>(p) % 16) % 16;
  }

  ir::Attrs AttrsOf() const {
    const ir::Attrs linear{ir::LinearAttrs{static_cast<int>(f_.segments.size()), f_.bias}};
    if (f_.op == Op::kLinear) return linear;
    ir::FusedAttrs fused;
    const ir::Attrs none;
    if (HasNorm(f_.op) || HasSandwich(f_.op))
      fused.parts.push_back({ir::NormAttrs{kEps1, kOffset1}});
    if (HasSandwich(f_.op)) {
      fused.parts.push_back(none);
      fused.parts.push_back({ir::NormAttrs{kEps2, kOffset2}});
    }
    fused.parts.push_back(linear);
    if (f_.op == Op::kLinearAdd) fused.parts.push_back(none);
    if (IsActMul(f_.op)) {
      fused.parts.push_back(none);
      fused.parts.push_back(none);
      fused.parts.push_back({ir::UnaryAttrs{ir::Activation::kGeluTanh}});
      fused.parts.push_back(none);
    }
    return {fused};
  }

  std::byte* arena() {
    std::byte* p = arena_.data();
    return p + (64 - reinterpret_cast<uintptr_t>(p) % 64) % 64;
  }
  std::byte* At(ir::ValueId v, int row, int i) {
    const ir::Placement& p = plan_.memory.places[static_cast<size_t>(v)];
    return arena() + p.offset + (row * p.row_stride + i) * ir::Info(TypeOf(v)).bytes;
  }
  DType TypeOf(ir::ValueId v) const { return plan_.graph.value(v).dtype; }
  double Get(ir::ValueId v, int row, int i) {
    float f = 0;
    ir::Dequantize(TypeOf(v), At(v, row, i), &f, 1);
    return f;
  }
  int WidthOf(ir::ValueId v) const {
    return static_cast<int>(plan_.graph.value(v).shape.back().count);
  }

  // Everything is NaN but what the step has; rows past its count are too.
  void Fill() {
    arena_.assign(static_cast<size_t>(end_ + 64), std::byte{0xff});
    for (const ir::ValueId v : {x_, r_}) {
      if (v == ir::kNone) continue;
      std::normal_distribution<float> normal(0.1f, 1);
      for (int row = 0; row < f_.tokens; ++row) {
        for (int i = 0; i < WidthOf(v); ++i) {
          const float value = normal(random_);
          ir::Quantize(TypeOf(v), &value, At(v, row, i), 1);
        }
      }
    }
    for (const auto& [id, at] : vector_of_)
      bindings_.weights[plan_.graph.value(id).name] = {
          vectors_[at].data(), DType::kF32, {kVectorLayout, 0}};
    for (const auto& [id, at] : matrix_of_)
      bindings_.weights[plan_.graph.value(id).name] = {
          MatrixData(id), f_.type, {MatrixLayout(f_.type), 0}};
    before_ = arena_;
  }

  std::vector<double> Norm(const std::vector<double>& x, ir::ValueId w, double offset, double eps) {
    double sum = 0;
    for (const double v : x) sum += v * v;
    const double scale = 1 / std::sqrt(sum / f_.k + eps);
    std::vector<double> y;
    for (size_t i = 0; i < x.size(); ++i)
      y.push_back(x[i] * scale * (vectors_[vector_of_[w]][i] + offset));
    return y;
  }
  double Dot(const std::vector<double>& x, size_t segment, int n) {
    const ir::ValueId w = w_[segment];
    const int64_t bytes = ir::Info(f_.type).bytes, pitch = PitchOf(f_.k);
    std::vector<float> row(static_cast<size_t>(f_.k));
    ir::Dequantize(f_.type, MatrixData(w) + n * pitch * bytes, row.data(), f_.k);
    double sum = 0;
    for (int i = 0; i < f_.k; ++i) sum += x[static_cast<size_t>(i)] * row[static_cast<size_t>(i)];
    if (f_.bias) sum += vectors_[vector_of_[b_[segment]]][static_cast<size_t>(n)];
    return sum;
  }

  void Check() {
    const double ulp = f_.type == DType::kF32   ? 1e-6
                       : f_.type == DType::kF16 ? 1.0 / 1024
                                                : 1.0 / 128;  // of activations rounded twice
    for (int row = 0; row < f_.tokens; ++row) {
      std::vector<double> x;
      for (int i = 0; i < f_.k; ++i) x.push_back(Get(x_, row, i));
      if (HasNorm(f_.op)) x = Norm(x, w1_, kOffset1, kEps1);
      if (HasSandwich(f_.op)) {
        x = Norm(x, w1_, kOffset1, kEps1);
        for (int i = 0; i < f_.k; ++i) {
          x[static_cast<size_t>(i)] += Get(r_, row, i);
          ASSERT_NEAR(Get(s_, row, i), x[static_cast<size_t>(i)], ulp * 4)
              << "s " << row << "," << i;
        }
        x = Norm(x, w2_, kOffset2, kEps2);
      }
      std::vector<double> want;
      for (size_t s = 0; s < (IsActMul(f_.op) ? 1 : w_.size()); ++s) {
        for (int n = 0; n < f_.segments[s]; ++n) {
          double v = Dot(x, s, n);
          if (IsActMul(f_.op)) {
            v = 0.5 * v * (1 + std::tanh(0.7978845608028654 * (v + 0.044715 * v * v * v)));
            v *= Dot(x, 1, n);
          }
          if (f_.op == Op::kLinearAdd) v += Get(r_, row, n);
          want.push_back(v);
        }
      }
      double largest = 1;
      for (const double v : want) largest = std::max(largest, std::fabs(v));
      for (size_t i = 0; i < want.size(); ++i) {
        // A product of two sums is off by both.
        ASSERT_NEAR(Get(y_, row, static_cast<int>(i)), want[i],
                    ulp * largest * (IsActMul(f_.op) ? 2 : 1))
            << "row " << row << ", column " << i;
      }
    }
    // What is not an output of the step's rows is as it was.
    for (const ir::ValueId v : {s_, y_}) {
      if (v == ir::kNone) continue;
      const size_t bytes = static_cast<size_t>(WidthOf(v) * ir::Info(TypeOf(v)).bytes);
      for (int row = 0; row < f_.tokens; ++row) {
        const auto at = At(v, row, 0) - arena_.data();
        std::memcpy(before_.data() + at, arena_.data() + at, bytes);
      }
    }
    ASSERT_EQ(std::memcmp(before_.data(), arena_.data(), arena_.size()), 0)
        << "wrote outside of its rows";
  }

  Form f_;
  std::mt19937 random_{5};
  ir::Plan plan_;
  Bindings bindings_;
  int64_t end_ = 0;
  ir::ValueId x_ = ir::kNone, r_ = ir::kNone, s_ = ir::kNone, y_ = ir::kNone, w1_ = ir::kNone,
              w2_ = ir::kNone;
  std::vector<ir::ValueId> w_, b_;
  std::vector<std::vector<float>> vectors_;
  std::vector<std::vector<std::byte>> matrices_;
  std::map<ir::ValueId, size_t> vector_of_, matrix_of_;
  std::vector<std::byte> arena_, before_;
  std::string kernel_;
};

std::string RunForm(const Form& f) {
  OneNode n(f);
  EXPECT_TRUE(n.Supported()) << Describe(f);
  n.Run();
  return n.kernel();
}

constexpr DType kTypes[] = {DType::kBF16, DType::kF16, DType::kF32};

TEST(Linear, EveryCountOfRowsAndOddSizes) {
  for (const DType t : kTypes) {
    for (const auto& [bucket, tokens] : std::vector<std::pair<int, int>>{{1, 1},
                                                                         {2, 2},
                                                                         {3, 2},
                                                                         {8, 8},
                                                                         {16, 13},
                                                                         {17, 17},
                                                                         {33, 31},
                                                                         {64, 40},
                                                                         {65, 65},
                                                                         {130, 129}}) {
      RunForm({.type = t, .bucket = bucket, .tokens = tokens, .k = 96, .segments = {37}});
      RunForm({.op = Op::kLinearAdd,
               .type = t,
               .bucket = bucket,
               .tokens = tokens,
               .k = 64,
               .segments = {72}});
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

TEST(Linear, SegmentsBiasesAndF32Out) {
  for (const DType t : kTypes) {
    for (const int rows : {1, 5, 20, 70}) {
      RunForm({.type = t,
               .bucket = rows,
               .tokens = rows,
               .k = 64,
               .segments = {48, 17, 16},
               .bias = true,
               .f32_out = true});
      RunForm(
          {.type = t, .bucket = rows, .tokens = rows, .k = 32, .segments = {9, 11, 13, 15, 17, 1}});
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

TEST(Linear, RowsAtAnyAddressAndAnyLength) {
  for (const DType t : kTypes) {
    for (const int rows : {1, 3, 18}) {
      for (const auto& [offset, gap] : std::vector<std::pair<int, int>>{{0, 0}, {1, 0}, {8, 3}}) {
        for (const int k : {1, 37, 96}) {
          RunForm({.type = t,
                   .bucket = rows,
                   .tokens = rows,
                   .k = k,
                   .segments = {10},
                   .x_offset = offset,
                   .x_gap = gap});
          if (testing::Test::HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(Linear, AsManyWavesShareAUnitAsThereIsWorkFor) {
  std::vector<std::string> kernels;
  for (const int units : {1, 2, 8, 64}) {
    for (const int k : {32, 96, 1024, 1120})
      kernels.push_back(
          RunForm({.bucket = 2, .tokens = 2, .k = k, .segments = {200}, .units = units}));
  }
  EXPECT_EQ(kernels.front(), "linear_direct_1x2_bf16");
  EXPECT_EQ(kernels.back(), "linear_direct_1x1_bf16");
}

TEST(Linear, NormsAndActivationsInOneKernel) {
  for (const DType t : kTypes) {
    for (const auto& [bucket, tokens] :
         std::vector<std::pair<int, int>>{{1, 1}, {2, 2}, {3, 3}, {5, 4}, {8, 8}, {16, 11}}) {
      for (const int k : {64, 37, 672}) {
        for (const Op op : {Op::kRmsNormLinear, Op::kNormAddNormLinear}) {
          RunForm({.op = op,
                   .type = t,
                   .bucket = bucket,
                   .tokens = tokens,
                   .k = k,
                   .segments = {33, 24, 7},
                   .bias = k == 37});
        }
        for (const Op op :
             {Op::kLinearActMul, Op::kRmsNormLinearActMul, Op::kNormAddNormLinearActMul}) {
          RunForm({.op = op,
                   .type = t,
                   .bucket = bucket,
                   .tokens = tokens,
                   .k = k,
                   .segments = {41, 41}});
        }
        if (testing::Test::HasFatalFailure()) return;
      }
    }
    for (const int rows : {17, 33, 64})
      RunForm({.op = Op::kLinearActMul,
               .type = t,
               .bucket = rows,
               .tokens = rows,
               .k = 64,
               .segments = {24, 24}});
  }
}

// Blocks of all that a multiprocessor has to do: of three, five and seven units.
TEST(Linear, BlocksOfManyUnits) {
  for (const DType t : {DType::kBF16, DType::kF16}) {
    for (const int units : {9, 15, 21}) {
      for (const int k : {96, 1152}) {
        const auto run = [&](Op op, std::vector<int> segments) {
          RunForm({.op = op,
                   .type = t,
                   .k = k,
                   .segments = std::move(segments),
                   .units = 3,
                   .early = true});
        };
        run(Op::kRmsNormLinear, {8 * units, 8 * units - 5});
        run(Op::kNormAddNormLinear, {8 * units - 3, 8 * units});
        run(Op::kNormAddNormLinearActMul, {8 * units - 1, 8 * units - 1});
        run(Op::kLinearAdd, {16 * units - 7});
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

// Large matrices: every form, with units and lines that the blocks and waves do not share evenly.
TEST(Linear, BlocksStreamLargeMatrices) {
  for (const DType t : {DType::kBF16, DType::kF16}) {
    for (const auto& [bucket, tokens] :
         std::vector<std::pair<int, int>>{{1, 1}, {8, 5}, {16, 16}}) {
      const auto run = [&, bucket = bucket, tokens = tokens](Form f, const char* input) {
        f.type = t;
        f.bucket = bucket;
        f.tokens = tokens;
        f.units = 3;
        f.cuda = true;
        EXPECT_EQ(RunForm(f), fmt::format("linear_stream_{}_{}_{}", input, bucket,
                                          t == DType::kBF16 ? "bf16" : "f16"));
      };
      // More of x than is worth a copy is read where it stands.
      const char* plain = bucket == 1 ? "staged" : "direct";
      run({.k = 4352, .segments = {70, 17}, .bias = true, .f32_out = true}, plain);
      if (bucket < 16) run({.k = 4096, .segments = {81}, .x_offset = 1}, "staged");
      run({.op = Op::kLinearAdd, .k = 4608, .segments = {131}}, plain);
      const int k = bucket < 16 ? 4096 : 2304;  // as much of x as there is room for
      run({.op = Op::kRmsNormLinear, .k = k, .segments = {67, 40, 8}}, "norm");
      run({.op = Op::kNormAddNormLinear, .k = k, .segments = {77}}, "sandwich");
      run({.op = Op::kLinearActMul, .k = 4096, .segments = {61, 61}}, plain);
      run({.op = Op::kRmsNormLinearActMul, .k = k, .segments = {45, 45}}, "norm");
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

TEST(LinearPlan, FormsWithoutAKernelAreNotSupported) {
  const Form many{.op = Op::kRmsNormLinear, .bucket = 65, .tokens = 65};
  EXPECT_FALSE(OneNode(many).Supported());
  const Form long_rows{.op = Op::kRmsNormLinear, .bucket = 16, .tokens = 16, .k = 4096};
  EXPECT_FALSE(OneNode(long_rows).Supported());  // 128 KiB would have to be staged
  const Form odd{.op = Op::kLinearActMul, .bucket = 20, .tokens = 20, .k = 40, .segments = {8, 8}};
  EXPECT_FALSE(OneNode(odd).Supported());
}

DeviceFacts H200() {
  DeviceFacts d;
  d.properties.units = 132;
  d.properties.shared_bytes = 227 << 10;
  d.properties.early_launch = true;
  d.cuda = true;
  return d;
}

// Decodes: every multiprocessor has one block of 12 to 16 waves, where nearly all of them get one.
TEST(LinearPlan, SmallMatricesSpreadOverTheDevice) {
  struct Want {
    int64_t k;
    std::vector<int64_t> segments;
    bool act_mul;
    int weight_tiles, parts, waves;
    int64_t units;
  };
  for (const Want& w : std::vector<Want>{
           {1024, {2048, 1024, 1024}, false, 2, 8, 16, 256},  // Qwen3-0.6B
           {2048, {1024}, false, 1, 16, 16, 128},
           {1024, {3072, 3072}, true, 2, 4, 12, 384},
           {3072, {1024}, false, 1, 16, 16, 128},
           {2048, {6144, 6144}, true, 2, 2, 12, 768},  // Qwen3-1.7B
           {1152, {6912, 6912}, true, 2, 2, 14, 864},  // Gemma-3-1B
           {6912, {1152}, false, 1, 8, 8, 144},        // 72 multiprocessors would have all of it
           {2048, {128256}, false, 2, 1, 8, 8016},     // so many blocks even out
       }) {
    const LinearPlan p =
        PlanLinear({.rows = 1, .k = w.k, .segments = w.segments, .act_mul = w.act_mul}, H200());
    EXPECT_EQ(p.kernel, LinearKernel::kSkinny);
    EXPECT_EQ(p.weight_tiles, w.weight_tiles) << w.k;
    EXPECT_EQ(p.parts, w.parts) << w.k;
    EXPECT_EQ(p.waves, w.waves) << w.k;
    int64_t units = 0;
    for (const int64_t n : w.segments) units += LinearUnits(p, n);
    EXPECT_EQ(w.act_mul ? units / 2 : units, w.units) << w.k;
    EXPECT_FALSE(p.staged);
  }
}

// Qwen3-8B's, of 32 MiB and more, but not where blocks would have unequal shares.
TEST(LinearPlan, LargeMatricesAreStreamed) {
  const auto plan = [](int64_t rows, int64_t k, std::vector<int64_t> segments, bool act_mul) {
    return PlanLinear({.rows = rows, .k = k, .segments = std::move(segments), .act_mul = act_mul},
                      H200());
  };
  EXPECT_TRUE(plan(1, 4096, {4096, 1024, 1024}, false).stream);
  EXPECT_TRUE(plan(8, 4096, {12288, 12288}, true).stream);
  EXPECT_TRUE(plan(16, 12288, {4096}, false).stream);
  EXPECT_TRUE(plan(1, 4096, {151936}, false).stream);
  EXPECT_FALSE(plan(1, 2048, {151936}, false).stream);
  EXPECT_FALSE(plan(17, 4096, {12288, 12288}, true).stream);
  EXPECT_FALSE(plan(1, 2048, {2048, 1024, 1024}, false).stream);
  EXPECT_FALSE(plan(1, 12288, {2200}, false).stream);  // 138 units for 132 multiprocessors
  EXPECT_FALSE(plan(1, 8192, {2048}, false).stream);   // 128: nothing to look ahead to
  // No two blocks are in a multiprocessor at once.
  for (const int64_t rows : {1, 2, 8, 16}) {
    EXPECT_GT(2 * plan(rows, 12288, {4096}, false).shared_bytes, 227 << 10) << rows;
    EXPECT_LE(plan(rows, 12288, {4096}, false).shared_bytes, 227 << 10) << rows;
    EXPECT_GT(2 * plan(rows, 4096, {32768}, false).shared_bytes, 227 << 10) << rows;
  }
}

TEST(LinearPlan, ManyRowsGoToTheLibraryOrToTiles) {
  DeviceFacts d = H200();
  EXPECT_EQ(PlanLinear({.rows = 64, .k = 1024, .segments = {1024}}, d).kernel,
            LinearKernel::kSkinny);
  EXPECT_EQ(PlanLinear({.rows = 65, .k = 1024, .segments = {1024}}, d).kernel, LinearKernel::kTile);
  d.blas = reinterpret_cast<BlasLt*>(&d);  // only whether there is one counts
  EXPECT_EQ(PlanLinear({.rows = 65, .k = 1024, .segments = {1024}}, d).kernel,
            LinearKernel::kLibrary);
  EXPECT_EQ(PlanLinear({.rows = 65, .k = 1000, .segments = {1024}}, d).kernel, LinearKernel::kTile);
}

}  // namespace
}  // namespace vt::gpu
