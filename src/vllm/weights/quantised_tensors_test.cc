// Small matrices in every layout, against the values that they were made of in double.
#include "vllm/weights/quantised_tensors.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>

#include "base/json.h"
#include "base/strings.h"
#include "vllm/weights/test_files.h"
#include "vt/ir/quant.h"

namespace vllm::weights {
namespace {

using testing::Raw;
using vt::ir::DType;
using Shape = std::vector<int64_t>;

// Stored tensors in one file.
class Stored {
 public:
  void Add(const std::string& name, DType type, Shape shape, const std::string& bytes) {
    int64_t count = 1;
    for (const int64_t d : shape) count *= d;
    ASSERT_EQ(static_cast<int64_t>(bytes.size()), vt::ir::Bytes(type, count)) << name;
    data_ += "x";  // nothing is aligned
    tensors[name] = {type, std::move(shape), {{0, data_.size(), bytes.size()}}, bytes.size()};
    data_ += bytes;
  }
  base::Result<std::vector<QuantisedTensor>> Join(const Quantisation& how) {
    return JoinQuantised(how, bytes(), tensors);
  }
  BytesOfPiece bytes() const {
    return
        [this](const TensorPiece& p) { return testing::AsBytes(data_).subspan(p.offset, p.bytes); };
  }
  std::map<std::string, TensorInfo> tensors;

 private:
  std::string data_;
};

// Codes [n][k], and of groups of `group` values of k scales and zeros.
struct Matrix {
  Matrix(int64_t n, int64_t k, int64_t group, int bits, bool zeros, uint32_t seed = 1)
      : n(n), k(k), group(group), groups((k + group - 1) / group), bits(bits) {
    std::mt19937 random(seed);
    const auto mask = (1u << bits) - 1, middle = 1u << (bits - 1);
    for (int64_t i = 0; i < n * k; ++i) codes.push_back(random() & mask);
    for (int64_t i = 0; i < n * groups; ++i) {
      zero.push_back(zeros ? random() & mask : middle);
      scale.push_back(std::ldexp(1 + static_cast<float>(random() % 128) / 128, -8));  // bf16's
    }
  }
  uint32_t CodeAt(int64_t row, int64_t i) const { return codes[static_cast<size_t>(row * k + i)]; }
  size_t GroupAt(int64_t row, int64_t i) const {
    return static_cast<size_t>(row * groups + i / group);
  }
  double ValueAt(int64_t row, int64_t i) const {
    const size_t g = GroupAt(row, i);
    return static_cast<double>(scale[g]) * (static_cast<double>(CodeAt(row, i)) - zero[g]);
  }
  // Words of the bits of f(0), f(1) ..
  std::string Pack(int64_t count, const std::function<uint32_t(int64_t)>& f) const {
    std::vector<uint32_t> words(static_cast<size_t>((count * bits + 31) / 32));
    for (int64_t i = 0; i < count; ++i)
      words[static_cast<size_t>(i * bits / 32)] |= f(i) << i * bits % 32;
    return {reinterpret_cast<const char*>(words.data()), words.size() * 4};
  }
  // [groups][n] or [n][groups].
  std::string Scales(DType type, bool transposed) const {
    std::string out;
    for (int64_t i = 0; i < n * groups; ++i) {
      const int64_t at = transposed ? i % n * groups + i / n : i;
      const float s = scale[static_cast<size_t>(at)];
      out += type == DType::kF32    ? Raw(s)
             : type == DType::kBF16 ? Raw(vt::ir::FloatToBFloat(s))
                                    : Raw(vt::ir::FloatToHalf(s));
    }
    return out;
  }
  int64_t n, k, group, groups;
  int bits;
  std::vector<uint32_t> codes, zero;
  std::vector<float> scale;
};

Stored Gptq(const Matrix& m, DType scales = DType::kF16, uint32_t less = 1) {
  Stored s;
  const int64_t each = 32 / m.bits;
  std::string words, zeros;
  for (int64_t k = 0; k < m.k; k += each) {
    for (int64_t n = 0; n < m.n; ++n)
      words += m.Pack(each, [&](int64_t i) { return m.CodeAt(n, k + i); });
  }
  for (int64_t g = 0; g < m.groups; ++g) {
    zeros += m.Pack(m.n, [&](int64_t n) {
      return (m.zero[static_cast<size_t>(n * m.groups + g)] - less) & ((1u << m.bits) - 1);
    });
  }
  std::string order;
  for (int64_t k = 0; k < m.k; ++k) order += Raw(static_cast<int32_t>(k / m.group));
  s.Add("a.qweight", DType::kI32, {m.k / each, m.n}, words);
  s.Add("a.qzeros", DType::kI32, {m.groups, m.n / each}, zeros);
  s.Add("a.scales", scales, {m.groups, m.n}, m.Scales(scales, true));
  s.Add("a.g_idx", DType::kI32, {m.k}, order);
  return s;
}

Stored Awq(const Matrix& m) {
  constexpr int kOrder[8] = {0, 2, 4, 6, 1, 3, 5, 7};
  Stored s;
  std::string words, zeros;
  for (int64_t k = 0; k < m.k; ++k)
    words += m.Pack(m.n, [&](int64_t i) { return m.CodeAt(i / 8 * 8 + kOrder[i % 8], k); });
  for (int64_t g = 0; g < m.groups; ++g) {
    zeros += m.Pack(m.n, [&](int64_t i) {
      return m.zero[static_cast<size_t>((i / 8 * 8 + kOrder[i % 8]) * m.groups + g)];
    });
  }
  s.Add("a.qweight", DType::kI32, {m.k, m.n / 8}, words);
  s.Add("a.qzeros", DType::kI32, {m.groups, m.n / 8}, zeros);
  s.Add("a.scales", DType::kF16, {m.groups, m.n}, m.Scales(DType::kF16, true));
  return s;
}

Stored Packed(const Matrix& m, DType scales, bool zeros) {
  Stored s;
  std::string words, packed;
  for (int64_t n = 0; n < m.n; ++n) words += m.Pack(m.k, [&](int64_t i) { return m.CodeAt(n, i); });
  for (int64_t n = 0; n < m.n; n += 8) {
    for (int64_t g = 0; g < m.groups; ++g) {
      packed += m.Pack(8, [&](int64_t i) {
        return n + i < m.n ? m.zero[static_cast<size_t>((n + i) * m.groups + g)] : 0;
      });
    }
  }
  s.Add("a.weight_packed", DType::kI32, {m.n, m.k * m.bits / 32}, words);
  s.Add("a.weight_scale", scales, {m.n, m.groups}, m.Scales(scales, false));
  s.Add("a.weight_shape", DType::kI64, {2}, Raw(m.n) + Raw(m.k));
  if (zeros) s.Add("a.weight_zero_point", DType::kI32, {(m.n + 7) / 8, m.groups}, packed);
  return s;
}

// The joined weight's values, all rows and a stretch of them alike.
std::vector<float> ValuesOf(Stored& s, const Quantisation& how, DType type, int64_t n, int64_t k) {
  const auto made = s.Join(how);
  EXPECT_TRUE(made) << made.error().message;
  if (!made) return std::vector<float>(static_cast<size_t>(n * k));
  const TensorInfo& info = s.tensors.at("a.weight");
  EXPECT_EQ(s.tensors.size(), 1u);
  EXPECT_EQ(info.dtype, type);
  EXPECT_EQ(info.shape, (Shape{n, k}));
  const QuantisedTensor& t = made->at(static_cast<size_t>(-1 - info.pieces[0].file));
  std::vector<std::byte> blocks(info.bytes);
  base::Status status = MakeBlocks(t, s.bytes(), 0, n, blocks.data());
  EXPECT_TRUE(status) << status.error().message;
  std::vector<std::byte> some(static_cast<size_t>(3 * t.RowBytes()));
  status = MakeBlocks(t, s.bytes(), 6, 3, some.data());  // over a group of eight
  EXPECT_TRUE(status);
  EXPECT_TRUE(std::equal(some.begin(), some.end(), blocks.begin() + 6 * t.RowBytes()));
  std::vector<float> out(static_cast<size_t>(n * k));
  vt::ir::Dequantize(type, blocks.data(), out.data(), n * k);
  return out;
}

// `rounding`: of a scale times the largest code.
void ExpectValues(Stored s, const Quantisation& how, DType type, const Matrix& m,
                  double rounding = 0) {
  const std::vector<float> got = ValuesOf(s, how, type, m.n, m.k);
  for (int64_t n = 0; n < m.n; ++n) {
    for (int64_t k = 0; k < m.k; ++k) {
      const double bound = rounding * m.scale[m.GroupAt(n, k)] * ((1 << m.bits) - 1);
      ASSERT_NEAR(got[static_cast<size_t>(n * m.k + k)], m.ValueAt(n, k), bound)
          << "row " << n << ", k " << k;
    }
  }
}

Quantisation How(Quantisation::Method method, int bits, int64_t group, bool symmetric = false) {
  Quantisation q;
  q.method = method;
  q.bits = bits;
  q.groups = {group};
  q.symmetric = symmetric;
  return q;
}
using Method = Quantisation::Method;

TEST(QuantisedTensors, SymmetricCodesAreKeptExactly) {
  for (const int64_t group : {32, 64, 128, 192}) {
    SCOPED_TRACE(group);
    const int64_t said = group == 192 ? 0 : group;  // a row
    const Matrix four(16, 192, group, 4, false), eight(16, 192, group, 8, false);
    const Quantisation packed = How(Method::kCompressedTensors, 0, said);
    ExpectValues(Gptq(four), How(Method::kGptq, 4, said, true), DType::kQ4_0, four);
    ExpectValues(Gptq(eight), How(Method::kGptq, 8, said, true), DType::kQ8_0, eight);
    for (const DType scales : {DType::kF16, DType::kBF16, DType::kF32}) {
      ExpectValues(Packed(four, scales, false), packed, DType::kQ4_0, four);
      ExpectValues(Packed(eight, scales, false), packed, DType::kQ8_0, eight);
    }
  }
}

// -scale * zero in f16 is off by half of its last place at most.
TEST(QuantisedTensors, CodesWithZerosAreOffByTheirMinimumsRounding) {
  constexpr double kHalf = 1.0 / 2048;
  for (const int64_t group : {32, 64, 128}) {
    SCOPED_TRACE(group);
    const Matrix m(24, 256, group, 4, true);
    ExpectValues(Awq(m), How(Method::kAwq, 4, group), DType::kQ4_1, m, kHalf);
    ExpectValues(Gptq(m), How(Method::kGptq, 4, group), DType::kQ4_1, m, kHalf);
    Quantisation second = How(Method::kGptq, 4, group);
    second.zeros_less_one = false;
    ExpectValues(Gptq(m, DType::kF16, 0), second, DType::kQ4_1, m, kHalf);
    ExpectValues(Packed(m, DType::kBF16, true), How(Method::kCompressedTensors, 0, group),
                 DType::kQ4_1, m, kHalf);
  }
}

TEST(QuantisedTensors, ScalesThatAreNoHalvesAreRoundedToThem) {
  Matrix m(16, 64, 32, 4, false);
  for (size_t i = 0; i < m.scale.size(); ++i) m.scale[i] *= 1 + static_cast<float>(i) * 1e-4f;
  ExpectValues(Packed(m, DType::kF32, false), How(Method::kCompressedTensors, 0, 32), DType::kQ4_0,
               m, 1.0 / 2048);
  m.scale[5] = 70000;
  Stored s = Packed(m, DType::kF32, false);
  const auto made = s.Join(How(Method::kCompressedTensors, 0, 32));
  ASSERT_TRUE(made) << made.error().message;
  std::vector<std::byte> blocks(16 * 36);
  const base::Status status = MakeBlocks((*made)[0], s.bytes(), 0, 16, blocks.data());
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message.find("'a.weight_packed': row 2"), std::string::npos)
      << status.error().message;
}

TEST(QuantisedTensors, BytesOfIntegersHaveOneScaleOrOneARow) {
  Matrix m(9, 96, 96, 8, false);
  std::string bytes;
  for (const uint32_t c : m.codes) bytes += static_cast<char>(c - 128);
  for (const bool one : {false, true}) {
    if (one) m.scale.assign(9, m.scale[0]);
    Stored s;
    s.Add("a.weight", DType::kI8, {9, 96}, bytes);
    if (one) {
      s.Add("a.weight_scale", DType::kBF16, {1}, Raw(vt::ir::FloatToBFloat(m.scale[0])));
    } else {
      s.Add("a.weight_scale", DType::kBF16, {9, 1}, m.Scales(DType::kBF16, false));
    }
    s.Add("a.input_scale", DType::kF32, {1}, Raw(1.0f));
    ExpectValues(s, How(Method::kCompressedTensors, 0, 0), DType::kQ8_0, m);
  }
}

// 8-bit floats with a scale for everything, for rows and for blocks of 24 x 64, some of them in
// part.
TEST(QuantisedTensors, EightBitFloatsKeepTheirScales) {
  constexpr int64_t kN = 40, kK = 160;
  std::mt19937 random(3);
  std::string codes;
  for (int64_t i = 0; i < kN * kK; ++i) {
    const auto c = static_cast<uint8_t>(random());
    codes += static_cast<char>((c & 0x7f) == 0x7f ? 0 : c);
  }
  struct Case {
    std::string scale;
    Shape shape;
    int64_t rows, columns;  // that share a scale
    DType type;
  };
  for (const Case& c : {Case{"a.weight_scale", {}, kN, kK, DType::kF32},
                        Case{"a.weight_scale", {kN, 1}, 1, kK, DType::kBF16},
                        Case{"a.weight_scale", {kN}, 1, kK, DType::kF32},
                        Case{"a.weight_scale_inv", {2, 3}, 24, 64, DType::kF32},
                        Case{"a.weight_scale_inv", {2, 3}, 24, 64, DType::kU8}}) {
    SCOPED_TRACE(fmt::format("{} {}", c.rows, c.columns));
    const int64_t across = (kK + c.columns - 1) / c.columns;
    std::string scales;
    std::vector<float> values;
    for (int64_t i = 0; i < (kN + c.rows - 1) / c.rows * across; ++i) {
      float v = std::ldexp(1 + static_cast<float>(random() % 1000) / 1000, -6);
      if (c.type == DType::kBF16) v = vt::ir::BFloatToFloat(vt::ir::FloatToBFloat(v));
      if (c.type == DType::kU8) v = std::ldexp(1.0f, static_cast<int>(random() % 20) - 10);
      values.push_back(v);
      scales += c.type == DType::kF32    ? Raw(v)
                : c.type == DType::kBF16 ? Raw(vt::ir::FloatToBFloat(v))
                                         : Raw(static_cast<uint8_t>(std::ilogb(v) + 127));
    }
    Stored s;
    s.Add("a.weight", DType::kF8_E4M3, {kN, kK}, codes);
    s.Add(c.scale, c.type, c.shape, scales);
    s.Add("a.k_scale", DType::kF32, {}, Raw(1.0f));
    Quantisation how = How(Method::kFp8, 0, 0);
    how.block_rows = 24;
    how.block_columns = 64;
    const std::vector<float> got = ValuesOf(s, how, DType::kF8_32, kN, kK);
    for (int64_t n = 0; n < kN; ++n) {
      for (int64_t k = 0; k < kK; ++k) {
        const auto i = static_cast<size_t>(n * kK + k);
        const float scale = values[static_cast<size_t>(n / c.rows * across + k / c.columns)];
        ASSERT_EQ(got[i], scale * vt::ir::F8ToFloat(static_cast<uint8_t>(codes[i])))
            << n << ", " << k;
      }
    }
  }
}

// e2m1: a sign, two bits of exponent (bias 1), one of mantissa.
double Float4(uint32_t c) {
  const int e = c >> 1 & 3, m = c & 1;
  const double size = e == 0 ? m / 2.0 : std::ldexp(1 + m / 2.0, e - 1);
  return c & 8 ? -size : size;
}

TEST(QuantisedTensors, FourBitFloatsOfExpertsAndOfRows) {
  constexpr int64_t kE = 3, kN = 5, kK = 96;
  std::mt19937 random(4);
  std::string codes, scales;
  for (int64_t i = 0; i < kE * kN * kK / 2; ++i) codes += static_cast<char>(random());
  for (int64_t i = 0; i < kE * kN * kK / 32; ++i) scales += static_cast<char>(110 + random() % 30);
  const auto expect = [&](Stored s, const std::string& name, const Shape& shape) {
    const auto made = s.Join(How(Method::kMxfp4, 0, 0));
    ASSERT_TRUE(made) << made.error().message;
    const TensorInfo& info = s.tensors.at(name);
    EXPECT_EQ(info.dtype, DType::kMXFP4);
    EXPECT_EQ(info.shape, shape);
    std::vector<std::byte> blocks(info.bytes);
    ASSERT_TRUE(MakeBlocks((*made)[0], s.bytes(), 0, kE * kN, blocks.data()));
    std::vector<float> got(kE * kN * kK);
    vt::ir::Dequantize(DType::kMXFP4, blocks.data(), got.data(), kE * kN * kK);
    for (size_t i = 0; i < got.size(); ++i) {
      const auto byte = static_cast<uint8_t>(codes[i / 2]);
      const int e = static_cast<uint8_t>(scales[i / 32]) - 127;
      ASSERT_EQ(got[i], std::ldexp(Float4(byte >> 4 * (i % 2) & 15), e)) << i;
    }
  };
  Stored experts, rows;
  experts.Add("m.experts.down_proj_blocks", DType::kU8, {kE, kN, kK / 32, 16}, codes);
  experts.Add("m.experts.down_proj_scales", DType::kU8, {kE, kN, kK / 32}, scales);
  expect(experts, "m.experts.down_proj.weight", {kE, kN, kK});
  rows.Add("a.weight_packed", DType::kU8, {kE * kN, kK / 2}, codes);
  rows.Add("a.weight_scale", DType::kU8, {kE * kN, kK / 32}, scales);
  expect(rows, "a.weight", {kE * kN, kK});
}

TEST(QuantisedTensors, WhatDoesNotFitIsRefusedByName) {
  const Matrix m(16, 64, 32, 4, false);
  const auto expect = [](Stored s, const Quantisation& how, const std::string& tensor,
                         const std::string& why) {
    const auto made = s.Join(how);
    ASSERT_FALSE(made) << tensor;
    EXPECT_NE(made.error().message.find("'" + tensor + "'"), std::string::npos)
        << made.error().message;
    EXPECT_NE(made.error().message.find(why), std::string::npos) << made.error().message;
  };
  const Quantisation gptq = How(Method::kGptq, 4, 32, true);
  const Quantisation packed = How(Method::kCompressedTensors, 0, 32);
  for (const char* part : {"a.scales", "a.qzeros"}) {
    Stored s = Gptq(m);
    s.tensors.erase(part);
    expect(s, gptq, part, "is missing");
  }
  Stored s = Gptq(m);
  s.tensors.erase("a.qweight");
  expect(s, gptq, "a.g_idx", "is missing");
  expect(Gptq(m), How(Method::kGptq, 4, 64, true), "a.scales", "[2, 16]");
  expect(Gptq(m), How(Method::kFp8, 0, 0), "a.qweight", "neither awq nor gptq");
  s = Gptq(m);
  std::string order;
  for (int32_t k = 0; k < 64; ++k) order += Raw(k % 2);
  s.tensors.erase("a.g_idx");
  s.Add("a.g_idx", DType::kI32, {64}, order);
  expect(s, gptq, "a.g_idx", "desc_act");
  s = Gptq(m);
  s.Add("a.weight", DType::kF32, {1}, Raw(0.0f));
  expect(s, gptq, "a.weight", "twice");
  s = Packed(m, DType::kF16, false);
  s.tensors.erase("a.weight_scale");
  expect(s, packed, "a.weight_scale", "is missing");
  expect(Packed(m, DType::kF16, false), How(Method::kCompressedTensors, 0, 64), "a.weight_scale",
         "[16, 2]");
  Stored narrow;
  narrow.Add("a.weight", DType::kF8_E4M3, {2, 48}, std::string(96, '\0'));
  expect(narrow, How(Method::kFp8, 0, 0), "a.weight", "multiples of 32");
  Stored bare;
  bare.Add("a.weight", DType::kF8_E4M3, {2, 64}, std::string(128, '\0'));
  expect(bare, {}, "a.weight_scale", "is missing");
  // Said to be symmetric, but not: found when rows are made.
  const Matrix zeros(16, 64, 32, 4, true);
  s = Gptq(zeros);
  const auto made = s.Join(gptq);
  ASSERT_TRUE(made) << made.error().message;
  std::vector<std::byte> blocks(16 * 36);
  EXPECT_FALSE(MakeBlocks((*made)[0], s.bytes(), 0, 16, blocks.data()));
}

base::Result<Quantisation> Read(const std::string& config) {
  return ReadQuantisation(base::ParseJson("{\"quantization_config\":" + config + "}")->as_object());
}

TEST(Quantisation, IsReadFromTheConfiguration) {
  EXPECT_EQ(Read("null")->method, Method::kNone);
  auto q = Read(R"({"quant_method":"fp8","weight_block_size":[128,128],"fmt":"e4m3",
                    "activation_scheme":"dynamic","modules_to_not_convert":["lm_head"]})");
  ASSERT_TRUE(q) << q.error().message;
  EXPECT_EQ(q->method, Method::kFp8);
  EXPECT_EQ(q->block_columns, 128);
  q = Read(R"({"quant_method":"gptq","bits":8,"group_size":-1,"desc_act":false,"sym":true,
               "checkpoint_format":"gptq_v2","dynamic":null})");
  ASSERT_TRUE(q) << q.error().message;
  EXPECT_EQ(q->bits, 8);
  EXPECT_EQ(q->groups, (std::vector<int64_t>{0}));
  EXPECT_FALSE(q->zeros_less_one);
  q = Read(R"({"quant_method":"compressed-tensors","format":"pack-quantized","ignore":["lm_head"],
      "config_groups":{"group_0":{"targets":["Linear"],"weights":{"num_bits":4,"type":"int",
      "strategy":"group","group_size":128,"symmetric":false}}}})");
  ASSERT_TRUE(q) << q.error().message;
  EXPECT_EQ(q->groups, (std::vector<int64_t>{128}));
}

TEST(Quantisation, WhatIsNotImplementedIsRefusedByItsField) {
  for (const auto& [config, field] : std::vector<std::pair<const char*, const char*>>{
           {R"({"quant_method":"bitsandbytes","load_in_4bit":true})", "bitsandbytes"},
           {R"({"bits":4,"group_size":64})", "unnamed"},
           {R"({"quant_method":"gptq","bits":3,"group_size":128})", "bits = 3"},
           {R"({"quant_method":"gptq","bits":8,"sym":false})", "sym"},
           {R"({"quant_method":"gptq","bits":4,"group_size":48})", "group_size = 48"},
           {R"({"quant_method":"gptq","dynamic":{"-:lm_head":{}}})", "dynamic"},
           {R"({"quant_method":"awq","version":"gemv"})", "version"},
           {R"({"quant_method":"fp8","fmt":"e5m2"})", "fmt"},
           {R"({"quant_method":"fp8","weight_block_size":[128,100]})", "weight_block_size"},
           {R"({"quant_method":"fp8","weight_block_size":128})", "weight_block_size"},
           {R"({"quant_method":"compressed-tensors","format":"marlin-24"})", "format"},
           {R"({"quant_method":"compressed-tensors","config_groups":{"g":{"weights":
               {"num_bits":3}}}})",
            "num_bits = 3"}}) {
    const auto q = Read(config);
    ASSERT_FALSE(q) << config;
    EXPECT_NE(q.error().message.find(field), std::string::npos) << q.error().message;
    EXPECT_NE(q.error().message.find("quantization_config"), std::string::npos)
        << q.error().message;
  }
}

}  // namespace
}  // namespace vllm::weights
