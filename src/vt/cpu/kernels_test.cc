// Kernels of every instruction set that this machine has, against the scalar reference conversions
// of quant.h.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "vt/cpu/formats.h"
#include "vt/cpu/isa.h"
#include "vt/cpu/repack.h"
#include "vt/ir/quant.h"

namespace vt::cpu {
namespace {

using ir::DType;

std::vector<float> Normal(int64_t n, uint32_t seed, float scale = 1) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> d(0, scale);
  std::vector<float> v(static_cast<size_t>(n));
  for (float& x : v) x = d(rng);
  return v;
}

struct Case {
  std::string isa;
  DType format;
};
void PrintTo(const Case& c, std::ostream* os) { *os << c.isa << "_" << Name(c.format); }

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const std::string& isa : AvailableIsas()) {
    for (DType t :
         {DType::kF32, DType::kF16, DType::kBF16, DType::kQ4_0, DType::kQ4_1, DType::kQ5_0,
          DType::kQ5_1, DType::kQ8_0, DType::kQ2_K, DType::kQ3_K, DType::kQ4_K, DType::kQ5_K,
          DType::kQ6_K, DType::kIQ4_NL, DType::kIQ4_XS, DType::kMXFP4, DType::kF8_32}) {
      cases.push_back({isa, t});
    }
  }
  return cases;
}

class LinearKernel : public testing::TestWithParam<Case> {
 protected:
  static constexpr int64_t kN = 43, kK = 768;  // 43: the last panel is padded

  void SetUp() override {
    kernels_ = *KernelsFor(GetParam().isa);
    const DType t = GetParam().format;
    const std::vector<float> values = Normal(kN * kK, 1);
    stored_.resize(static_cast<size_t>(ir::Bytes(t, kN * kK)));
    ir::Quantize(t, values.data(), stored_.data(), kN * kK);
    w_.resize(static_cast<size_t>(kN * kK));
    ir::Dequantize(t, stored_.data(), w_.data(), kN * kK);
    panel_bytes_ = PanelBytesOf(t, kernels_.nr, kernels_.pairs, kK);
    panels_ = (kN + kernels_.nr - 1) / kernels_.nr;
    packed_.resize(static_cast<size_t>(panel_bytes_ * panels_) + 64);
    RepackPanels({stored_.data(), t, kN, kK}, kernels_.nr, kernels_.pairs, 0, panels_,
                 packed_.data());
    scratch_.resize(static_cast<size_t>(LinearScratchBytes(kernels_.nr, kK)));
  }

  KernelSet kernels_;
  std::vector<std::byte> stored_, packed_, scratch_;
  std::vector<float> w_;
  int64_t panel_bytes_ = 0, panels_ = 0;
};

TEST_P(LinearKernel, ReadsRowsOutOfPanels) {
  std::vector<float> row(kK);
  for (int64_t n = 0; n < kN; ++n) {
    kernels_.read_row[static_cast<int>(GetParam().format)](
        packed_.data() + n / kernels_.nr * panel_bytes_, static_cast<int>(n % kernels_.nr), kK,
        row.data(), scratch_.data());
    for (int64_t k = 0; k < kK; ++k) {
      const float want = w_[static_cast<size_t>(n * kK + k)];
      // One rounding of scale * code - min against the reference's.
      ASSERT_NEAR(row[static_cast<size_t>(k)], want, 2e-6f * (1 + std::fabs(want)))
          << "row " << n << " column " << k;
    }
  }
}

// What a row becomes depends on which of two kernels has it, that of one to three rows or that of
// more, and on nothing else of the step: they scale and add in different orders.
TEST_P(LinearKernel, ARowDependsOnWhetherTheStepIsOfAFewRowsAlone) {
  const DType format = GetParam().format;
  if (GetParam().isa != "scalar" && GetParam().isa != "avx2") {
    GTEST_SKIP() << "found so for scalar and avx2; nobody has looked at the others yet";
  }
  const bool quantised = TakesInt8(format);
  const int64_t row_bytes = quantised ? ActivationRowBytes(kK) : kK * 4;
  constexpr int64_t kRows = 17;
  const std::vector<float> x = Normal(kRows * kK, 7);
  std::vector<std::byte> rows(static_cast<size_t>(kRows * row_bytes));
  for (int64_t r = 0; r < kRows; ++r) {
    std::byte* out = rows.data() + r * row_bytes;
    if (quantised) {
      kernels_.quantize(x.data() + r * kK, kK, out);
    } else {
      std::memcpy(out, x.data() + r * kK, static_cast<size_t>(row_bytes));
    }
  }
  const auto run = [&](int64_t first, int64_t count) {
    std::vector<float> out(static_cast<size_t>(count * kN));
    LinearArgs a;
    a.x = rows.data() + first * row_bytes;
    a.x_stride = row_bytes;
    a.rows = count;
    a.k = kK;
    a.w = packed_.data();
    a.panel_bytes = panel_bytes_;
    a.n = kN;
    a.out = out.data();
    a.out_stride = kN;
    kernels_.linear[static_cast<int>(format)](a, 0, panels_, scratch_.data());
    return out;
  };
  std::vector<float> alone;
  for (int64_t r = 0; r < kRows; ++r) {
    const std::vector<float> one = run(r, 1);
    alone.insert(alone.end(), one.begin(), one.end());
  }
  const std::vector<float> all = run(0, kRows);
  for (int64_t count = 2; count < kRows; ++count) {
    for (int64_t first = 0; first + count <= kRows; first += 3) {
      const std::vector<float>& want = count < 4 ? alone : all;
      const std::vector<float> got = run(first, count);
      EXPECT_TRUE(std::equal(got.begin(), got.end(), want.begin() + first * kN))
          << count << " rows from " << first;
    }
  }
  if (format == DType::kQ8_0 || format == DType::kIQ4_NL) EXPECT_EQ(all, alone);
}

TEST_P(LinearKernel, MatchesTheReferenceForFewAndManyRows) {
  const bool quantised = TakesInt8(GetParam().format);
  for (int64_t rows : {1, 2, 3, 4, 5, 17}) {
    SCOPED_TRACE(rows);
    std::vector<float> x = Normal(rows * kK, 7);
    for (int64_t k = 0; k < kK; ++k)
      x[static_cast<size_t>(k)] = k % 2 ? 3.0f : 2.9f;  // all near +127: widest sums
    const std::vector<float> bias = Normal(kN, 3), residual = Normal(rows * kN, 4);
    const int64_t row_bytes = quantised ? ActivationRowBytes(kK) : kK * 4;
    std::vector<std::byte> packed_x(static_cast<size_t>(rows * row_bytes));
    for (int64_t r = 0; r < rows; ++r) {
      float* row = x.data() + r * kK;
      std::byte* out = packed_x.data() + r * row_bytes;
      if (!quantised) {
        std::memcpy(out, row, static_cast<size_t>(row_bytes));
        continue;
      }
      kernels_.quantize(row, kK, out);
      for (int64_t b = 0; b < kK / 32; ++b) {
        ir::BlockQ8A32 block;
        std::memcpy(&block, out + b * 40, sizeof block);
        const float d = block.d;
        for (int h = 0; h < 2; ++h) {
          int want = 0;
          for (int i = 0; i < 16; ++i) {
            const int q = block.q[16 * h + i];
            float& v = row[32 * b + 16 * h + i];
            ASSERT_NEAR(d * static_cast<float>(q), v, d * 0.501f);
            want += q;
            v = d * static_cast<float>(q);
          }
          ASSERT_EQ(block.sum[h], want);
        }
      }
    }
    std::vector<float> out(static_cast<size_t>(rows * kN), NAN);
    LinearArgs a;
    a.x = packed_x.data();
    a.x_stride = row_bytes;
    a.rows = rows;
    a.k = kK;
    a.w = packed_.data();
    a.panel_bytes = panel_bytes_;
    a.n = kN;
    a.out = out.data();
    a.out_stride = kN;
    a.bias = bias.data();
    a.residual = residual.data();
    a.residual_stride = kN;
    kernels_.linear[static_cast<int>(GetParam().format)](a, 0, panels_, scratch_.data());
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t n = 0; n < kN; ++n) {
        double want = bias[static_cast<size_t>(n)] + residual[static_cast<size_t>(r * kN + n)],
               size = 1;
        for (int64_t k = 0; k < kK; ++k) {
          const double p = static_cast<double>(x[static_cast<size_t>(r * kK + k)]) *
                           w_[static_cast<size_t>(n * kK + k)];
          want += p;
          size += std::fabs(p);
        }
        // f32 sums of 512 products.
        ASSERT_NEAR(out[static_cast<size_t>(r * kN + n)], want, 2e-6 * size)
            << "row " << r << " of x, " << n << " of w";
      }
    }
  }
}

// Where the set has them: rows of x in bf16, weights rounded to bf16, sums in f32.
TEST_P(LinearKernel, OfBf16ActivationsMatchesTheReferenceForFewAndManyRows) {
  const LinearFn linear = kernels_.brain_linear[static_cast<int>(GetParam().format)];
  if (linear == nullptr) GTEST_SKIP() << GetParam().isa << " has no linear of bf16 activations";
  const auto rounded = [](std::vector<float> v) {
    std::vector<uint16_t> bits(v.size());
    ir::Quantize(DType::kBF16, v.data(), bits.data(), static_cast<int64_t>(v.size()));
    ir::Dequantize(DType::kBF16, bits.data(), v.data(), static_cast<int64_t>(v.size()));
    return v;
  };
  const std::vector<float> w = rounded(w_);
  for (int64_t rows : {1, 2, 3, 4, 17, 31, 33, 300}) {
    SCOPED_TRACE(rows);
    const std::vector<float> x = Normal(rows * kK, 7), bias = Normal(kN, 3),
                             residual = Normal(rows * kN, 4);
    std::vector<std::byte> packed_x(static_cast<size_t>(rows * kK * 2));
    for (int64_t r = 0; r < rows; ++r)
      kernels_.to_brain(x.data() + r * kK, kK, packed_x.data() + r * kK * 2);
    const std::vector<float> seen = rounded(x);
    std::vector<float> out(static_cast<size_t>(rows * kN), NAN);
    LinearArgs a;
    a.x = packed_x.data();
    a.x_stride = kK * 2;
    a.rows = rows;
    a.k = kK;
    a.w = packed_.data();
    a.panel_bytes = panel_bytes_;
    a.n = kN;
    a.out = out.data();
    a.out_stride = kN;
    a.bias = bias.data();
    a.residual = residual.data();
    a.residual_stride = kN;
    linear(a, 0, panels_, scratch_.data());
    for (int64_t r = 0; r < rows; r += r < 40 ? 1 : 13) {
      for (int64_t n = 0; n < kN; ++n) {
        double want = bias[static_cast<size_t>(n)] + residual[static_cast<size_t>(r * kN + n)],
               size = 1;
        for (int64_t k = 0; k < kK; ++k) {
          const double p = static_cast<double>(seen[static_cast<size_t>(r * kK + k)]) *
                           w[static_cast<size_t>(n * kK + k)];
          want += p;
          size += std::fabs(p);
        }
        ASSERT_NEAR(out[static_cast<size_t>(r * kN + n)], want, 2e-6 * size)
            << "row " << r << " of x, " << n << " of w";
      }
    }
  }
}

std::string CaseName(const testing::TestParamInfo<Case>& info) {
  return info.param.isa + "_" + std::string(Name(info.param.format));
}
INSTANTIATE_TEST_SUITE_P(Cpu, LinearKernel, testing::ValuesIn(Cases()), CaseName);

class RowKernel : public testing::TestWithParam<std::string> {};

TEST_P(RowKernel, ActivationsMatchDoublePrecision) {
  const KernelSet k = *KernelsFor(GetParam());
  std::vector<float> x;
  for (int i = -2000; i <= 2003; ++i) x.push_back(static_cast<float>(i) * 0.01f);
  x.insert(x.end(), {-100.0f, 88.0f, 1e-6f, -1e-6f});
  const int64_t n = static_cast<int64_t>(x.size());
  const std::pair<Activate, double (*)(double)> all[] = {
      {Activate::kSilu, [](double v) { return v / (1 + std::exp(-v)); }},
      {Activate::kGeluTanh,
       [](double v) {
         return v / (1 + std::exp(-2 * 0.7978845608028654 * (v + 0.044715 * v * v * v)));
       }},
      {Activate::kGelu, [](double v) { return 0.5 * v * std::erfc(-v * 0.7071067811865476); }},
      {Activate::kRelu, [](double v) { return v > 0 ? v : 0; }},
      {Activate::kSigmoid, [](double v) { return 1 / (1 + std::exp(-v)); }},
      {Activate::kTanh, [](double v) { return std::tanh(v); }},
      {Activate::kExp, [](double v) { return std::exp(v); }},
      {Activate::kSoftplus, [](double v) { return std::log1p(std::exp(v)); }},
      {Activate::kSquaredRelu, [](double v) { return v > 0 ? v * v : 0; }},
  };
  std::vector<float> y(x.size());
  for (const auto& [fn, want] : all) {
    k.activate(fn, x.data(), n, y.data());
    for (size_t i = 0; i < x.size(); ++i) {
      const double w = want(x[i]);
      // 1e-6, and where an exponent u of e^u was itself rounded to f32, |u| 2^-24 more (|u| < 100).
      // Results below the smallest normal float may be 0.
      ASSERT_NEAR(y[i], w, std::fabs(w) * 1.2e-5 + 2e-37) << static_cast<int>(fn) << " at " << x[i];
      if (std::fabs(x[i]) < 5) {
        ASSERT_NEAR(y[i], w, std::fabs(w) * 3e-6) << static_cast<int>(fn) << " at " << x[i];
      }
    }
  }
}

TEST_P(RowKernel, NormsAndSoftmaxOfOddLengths) {
  const KernelSet k = *KernelsFor(GetParam());
  for (int64_t n : {1, 7, 16, 37, 576}) {
    SCOPED_TRACE(n);
    const std::vector<float> x = Normal(n, 1, 3), w = Normal(n, 2), b = Normal(n, 5);
    std::vector<float> y(x.size());
    double squares = 0, mean = 0, variance = 0, max = -1e30, sum = 0;
    for (float v : x)
      squares += static_cast<double>(v) * v, mean += v, max = std::max<double>(max, v);
    mean /= static_cast<double>(n);
    for (float v : x) variance += (v - mean) * (v - mean), sum += std::exp(v - max);
    k.rms_norm(x.data(), w.data(), 1e-5f, 1, n, y.data());
    for (size_t i = 0; i < x.size(); ++i) {
      const double want = x[i] / std::sqrt(squares / static_cast<double>(n) + 1e-5) * (w[i] + 1);
      ASSERT_NEAR(y[i], want, 2e-6 * (1 + std::fabs(want)));
    }
    k.layer_norm(x.data(), w.data(), b.data(), 1e-5f, 0, n, y.data());
    for (size_t i = 0; i < x.size(); ++i) {
      const double want =
          (x[i] - mean) / std::sqrt(variance / static_cast<double>(n) + 1e-5) * w[i] + b[i];
      ASSERT_NEAR(y[i], want, 2e-5 * (1 + std::fabs(want)));
    }
    k.softmax(x.data(), n, false, y.data());
    for (size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(y[i], std::exp(x[i] - max) / sum, 1e-6);
    k.softmax(x.data(), n, true, y.data());
    for (size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(y[i], x[i] - max - std::log(sum), 1e-5);
  }
}

TEST_P(RowKernel, ArgMaxTakesTheLowestOfTiesAndNeverNan) {
  const KernelSet k = *KernelsFor(GetParam());
  std::vector<float> x(100, -1.0f);
  x[3] = NAN;
  x[50] = x[97] = 2;
  EXPECT_EQ(k.argmax(x.data(), 100), 50);
  x[98] = 3;
  EXPECT_EQ(k.argmax(x.data(), 100), 98);
}

// Attention over shuffled blocks against the definition.
TEST_P(RowKernel, AttentionSeesCausalWindowedKeysOfShuffledBlocks) {
  const KernelSet k = *KernelsFor(GetParam());
  struct Shape {
    int64_t heads, kv_heads, head_dim, block, window, past, tokens;
    float softcap;
    bool half;
  };
  for (const Shape& s :
       {Shape{9, 3, 64, 16, 0, 70, 1, 0, false}, Shape{4, 1, 40, 16, 5, 33, 7, 0, false},
        Shape{4, 2, 64, 16, 0, 0, 21, 30, false}, Shape{2, 2, 32, 24, 9, 50, 3, 0, false},
        Shape{8, 2, 128, 32, 0, 40, 5, 0, true}}) {
    SCOPED_TRACE(s.head_dim);
    const int64_t keys = s.past + s.tokens, blocks = (keys + s.block - 1) / s.block;
    KvLayer kv;
    kv.block_size = s.block;
    kv.pitch = (s.block + 15) / 16 * 16;
    kv.kv_heads = s.kv_heads;
    kv.head_dim = s.head_dim;
    kv.half = s.half;
    kv.block_bytes = s.kv_heads * s.head_dim * (kv.pitch + s.block) * (s.half ? 2 : 4);
    std::vector<std::byte> data(static_cast<size_t>(kv.block_bytes * (blocks + 2)),
                                std::byte{0xff});  // NaN
    kv.data = data.data();
    std::vector<int32_t> table(static_cast<size_t>(blocks));
    for (int64_t b = 0; b < blocks; ++b)
      table[static_cast<size_t>(b)] = static_cast<int32_t>((b * 3 + 1) % blocks);
    if (blocks % 3 == 0) {
      for (int64_t b = 0; b < blocks; ++b)
        table[static_cast<size_t>(b)] = static_cast<int32_t>(blocks - 1 - b);
    }
    const int64_t width = s.kv_heads * s.head_dim;
    std::vector<float> key = Normal(keys * width, 1), value = Normal(keys * width, 2);
    const std::vector<float> q = Normal(s.tokens * s.heads * s.head_dim, 3);
    if (s.half) {
      for (float& v : key) v = ir::HalfToFloat(ir::FloatToHalf(v));
      for (float& v : value) v = ir::HalfToFloat(ir::FloatToHalf(v));
    }
    for (int64_t i = 0; i < keys; ++i) {
      k.kv_write(kv, key.data() + i * width, value.data() + i * width,
                 table[static_cast<size_t>(i / s.block)] * s.block + i % s.block);
    }
    std::vector<int32_t> positions;
    for (int64_t t = 0; t < s.tokens; ++t) positions.push_back(static_cast<int32_t>(s.past + t));
    AttentionArgs a;
    a.q = q.data();
    a.q_stride = s.heads * s.head_dim;
    std::vector<float> out(q.size(), NAN), joined(q.size(), NAN);
    a.out = out.data();
    a.out_stride = a.q_stride;
    a.kv = kv;
    a.heads = s.heads;
    a.value_dim = s.head_dim;
    a.scale = 0.2f;
    a.softcap = s.softcap;
    a.window = s.window;
    const int64_t group = s.heads / s.kv_heads, stride = s.tokens * group * (s.head_dim + 2);
    std::vector<std::byte> scratch(static_cast<size_t>(AttentionScratchBytes(group, s.head_dim)));
    std::vector<float> partial(static_cast<size_t>(2 * stride));
    for (int64_t h = 0; h < s.kv_heads; ++h) {
      AttentionTile t{0, s.tokens, positions.data(), table.data(), h, 0, keys};
      k.attention(a, t, scratch.data());
      for (int64_t part = 0; part < 2; ++part) {
        t.key_begin = part == 0 ? 0 : 32;
        t.key_end = part == 0 ? std::min<int64_t>(32, keys) : keys;
        t.partial = partial.data() + part * stride;
        k.attention(a, t, scratch.data());
      }
      for (int64_t r = 0; r < s.tokens * group; ++r) {
        k.attention_join(
            partial.data() + r * (s.head_dim + 2), 2, stride, s.head_dim,
            joined.data() + ((r / group) * s.heads + h * group + r % group) * s.head_dim);
      }
    }
    for (int64_t t = 0; t < s.tokens; ++t) {
      for (int64_t h = 0; h < s.heads; ++h) {
        const int64_t p = s.past + t;
        std::vector<double> weights(static_cast<size_t>(keys), 0.0);
        double sum = 0;
        for (int64_t j = 0; j <= p; ++j) {
          if (s.window > 0 && j <= p - s.window) continue;
          double dot = 0;
          for (int64_t d = 0; d < s.head_dim; ++d) {
            dot += static_cast<double>(q[static_cast<size_t>((t * s.heads + h) * s.head_dim + d)]) *
                   key[static_cast<size_t>(j * width + h / group * s.head_dim + d)];
          }
          dot *= 0.2;
          if (s.softcap > 0) dot = s.softcap * std::tanh(dot / s.softcap);
          sum += weights[static_cast<size_t>(j)] = std::exp(dot);
        }
        for (int64_t d = 0; d < s.head_dim; ++d) {
          double want = 0;
          for (int64_t j = 0; j < keys; ++j) {
            want += weights[static_cast<size_t>(j)] / sum *
                    value[static_cast<size_t>(j * width + h / group * s.head_dim + d)];
          }
          const size_t i = static_cast<size_t>((t * s.heads + h) * s.head_dim + d);
          ASSERT_NEAR(out[i], want, 1e-5) << "token " << t << " head " << h << " of " << s.head_dim;
          ASSERT_NEAR(joined[i], want, 1e-5) << "joined, token " << t << " head " << h;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cpu, RowKernel, testing::ValuesIn(AvailableIsas()),
                         [](const auto& i) { return i.param; });

}  // namespace
}  // namespace vt::cpu
