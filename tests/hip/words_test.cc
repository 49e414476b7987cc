// gpu.h's words as compiled AMD code, on the emulator of instructions, against the host's own
// arithmetic.
#include "tests/hip/words.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <random>
#include <set>

#include "tests/hip/stand_in.h"
#include "vt/gpu/embedded_code.h"
#include "vt/gpu/vendor_driver.h"
#include "vt/ir/quant.h"

namespace vt::gpu {
std::span<const EmbeddedCode> WordsCode();

namespace {

constexpr int kThreads = 256, kBlocks = 2, kCount = kThreads * kBlocks;

class Words : public testing::TestWithParam<const char*> {
 protected:
  // The stand-in is one card a process: ctest runs each case in its own.
  void SetUp() override {
    if (!hip_stand_in_emulates())
      GTEST_SKIP() << "TINYGRAD names no checkout of the emulator of instructions";
    setenv("HIP_STAND_IN_ARCH", GetParam(), 1);
    driver_ = MakeVendorDriver(Vendor::kRocm, {HIP_STAND_IN});
    const base::Result<DeviceProperties> p = driver_->Properties(0);
    ASSERT_TRUE(p) << p.error().message;
    if (p->arch != GetParam()) GTEST_SKIP() << "the card of this process is a " << p->arch;
    wave_ = p->wave;
    ASSERT_TRUE(driver_->Open(0));
    stream_ = *driver_->CreateStream();
    for (const EmbeddedCode& code : WordsCode()) {
      if (code.arch == p->arch) {
        base::Result<Module> m = driver_->LoadModule(code.bytes);
        ASSERT_TRUE(m) << m.error().message;
        module_ = *m;
      }
    }
    ASSERT_NE(module_, nullptr);
  }
  template <class V>
  void* Upload(const std::vector<V>& v) {
    void* p = *driver_->Allocate(static_cast<int64_t>(v.size() * sizeof(V)));
    EXPECT_TRUE(
        driver_->CopyToDevice(stream_, p, v.data(), static_cast<int64_t>(v.size() * sizeof(V))));
    return p;
  }
  template <class V>
  std::vector<V> Download(const void* p, size_t count) {
    std::vector<V> v(count);
    EXPECT_TRUE(driver_->CopyToHost(stream_, v.data(), p, static_cast<int64_t>(count * sizeof(V))));
    return v;
  }
  template <class Args>
  void Run(const char* kernel, unsigned blocks, unsigned threads, unsigned shared, Args args) {
    base::Result<Function> f = driver_->FindFunction(module_, kernel);
    ASSERT_TRUE(f) << f.error().message;
    const base::Status s = driver_->Launch(
        stream_,
        {.function = *f, .grid_x = blocks, .grid_y = 1, .threads = threads, .shared_bytes = shared},
        &args, sizeof args);
    ASSERT_TRUE(s) << s.error().message;
  }

  std::unique_ptr<Driver> driver_;
  Stream stream_ = nullptr;
  Module module_ = nullptr;
  int wave_ = 32;
};

TEST_P(Words, MeanWhatTheySay) {
  std::mt19937 random(7);
  std::uniform_real_distribution<float> uniform(-3, 3), exponent(-3, 0.7f);
  std::vector<float> x(kCount);
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = uniform(random) * (i % 2 == 0 ? 1.0f : std::pow(10.0f, exponent(random)));
  WordsArgs args = {static_cast<float*>(Upload(x)), nullptr, nullptr, 5};
  args.y = static_cast<float*>(Upload(std::vector<float>(kCount * kWords)));
  args.counters = static_cast<int*>(Upload(std::vector<int>{0, 0}));
  Run("words", kBlocks, kThreads, (32 + kThreads) * 4, args);
  const std::vector<float> y = Download<float>(args.y, kCount * kWords);
  const std::vector<int> counters = Download<int>(args.counters, 2);
  EXPECT_EQ(counters[0], kCount / wave_);
  EXPECT_EQ(counters[1], kCount - wave_);
  std::set<float> tickets;
  for (int i = 0; i < kCount; i += wave_)
    tickets.insert(y[static_cast<size_t>(i * kWords + kTicket)]);
  EXPECT_EQ(tickets.size(), static_cast<size_t>(kCount / wave_));
  EXPECT_EQ(*tickets.rbegin(), static_cast<float>(kCount / wave_ - 1));

  for (int i = 0; i < kCount; ++i) {
    const float v = x[static_cast<size_t>(i)];
    const double d = v, a = std::fabs(d);
    const float* got = &y[static_cast<size_t>(i * kWords)];
    const int wave = i / wave_ * wave_, lane = i % wave_, block = i / kThreads * kThreads;
    const auto at = [&](int j) { return x[static_cast<size_t>(j)]; };
    const auto exact = [&](Word w, float want) {
      EXPECT_EQ(got[w], want) << "word " << w << " of " << v;
    };
    // In units of the last place of the answer, which LLVM and AMD's manuals give as 1 to 2.
    const auto close = [&](Word w, double want, double ulp) {
      const double unit = std::max(std::fabs(want), 1e-37) * std::ldexp(1.0, -23);
      EXPECT_NEAR(got[w], want, ulp * unit) << "word " << w << " of " << v;
    };
    exact(kXor1, at(wave + (lane ^ 1)));
    exact(kXor2, at(wave + (lane ^ 2)));
    exact(kXor4, at(wave + (lane ^ 4)));
    exact(kXor8, at(wave + (lane ^ 8)));
    exact(kXor16, at(wave + (lane ^ 16)));
    exact(kXorMask, at(wave + (lane ^ 5)));
    exact(kShuffle, at(wave + (lane * 7 + 3) % wave_));
    double wave_sum = 0, sizes = 0, block_sum = 0, block_sizes = 0;
    float high = at(wave);
    bool any = false;
    for (int j = wave; j < wave + wave_; ++j) {
      wave_sum += at(j), sizes += std::fabs(at(j));
      high = std::max(high, at(j));
      any |= at(j) > 2.9f;
    }
    for (int j = block; j < block + kThreads; ++j)
      block_sum += at(j), block_sizes += std::fabs(at(j));
    EXPECT_NEAR(got[kWaveSum], wave_sum, sizes * 4e-7);  // six additions
    EXPECT_NEAR(got[kBlockSum], block_sum, block_sizes * 1e-6);
    exact(kWaveMax, high);
    exact(kAny, any ? 1 : 0);
    exact(kAnew, static_cast<float>(i % kThreads));
    close(kExp, std::exp(d), 2);
    close(kExp2, std::exp2(d), 2);
    close(kLog, std::log(a), 3);
    close(kLog2, std::log2(a), 3);
    close(kTanh, std::tanh(d), 3);
    close(kErf, std::erf(d), 3);
    close(kSqrt, std::sqrt(a), 1);
    close(kRsqrt, 1 / std::sqrt(a), 2);
    uint32_t bits = 0;
    std::memcpy(&bits, &v, 4);
    bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u;
    float rounded = 0;
    std::memcpy(&rounded, &bits, 4);
    exact(kBrain, rounded);
    exact(kHalf, ir::HalfToFloat(ir::FloatToHalf(v)));
    exact(kTurned, at(block + kThreads - 1 - i % kThreads));
    exact(kCopied, i % 4 == 3 ? 0 : v);
    exact(kStream, v);
  }
}

// --- products
template <class V>
struct Format;
struct Brain {};
struct Half {};
template <>
struct Format<float> {
  using Bits = float;
  static float Get(float v) { return v; }
  static float Put(float v) { return v; }
};
template <>
struct Format<Brain> {
  using Bits = uint16_t;
  static float Get(uint16_t b) {
    const uint32_t u = static_cast<uint32_t>(b) << 16;
    float f = 0;
    std::memcpy(&f, &u, 4);
    return f;
  }
  static uint16_t Put(float v) {
    uint32_t u = 0;
    std::memcpy(&u, &v, 4);
    return static_cast<uint16_t>((u + 0x7fff + (u >> 16 & 1)) >> 16);
  }
};
template <>
struct Format<Half> {
  using Bits = uint16_t;
  static float Get(uint16_t b) { return ir::HalfToFloat(b); }
  static uint16_t Put(float v) { return ir::FloatToHalf(v); }
};

class Products : public Words {
 protected:
  template <class V>
  void Try(const char* kernel) {
    using F = Format<V>;
    using Bits = typename F::Bits;
    std::mt19937 random(11);
    std::uniform_real_distribution<float> uniform(-1, 1);
    const auto fill = [&](size_t n) {
      std::vector<Bits> v(n);
      for (Bits& b : v) b = F::Put(uniform(random));
      return v;
    };
    const std::vector<Bits> a = fill(16 * 64), b = fill(32 * 64), v = fill(32 * 16);
    ProductArgs args = {Upload(a), Upload(b), Upload(v), nullptr, nullptr, nullptr, nullptr};
    args.c = static_cast<float*>(Upload(std::vector<float>(16 * 32)));
    args.d = static_cast<float*>(Upload(std::vector<float>(16 * 16)));
    args.sums = static_cast<float*>(Upload(std::vector<float>(16)));
    args.highest = static_cast<float*>(Upload(std::vector<float>(16)));
    Run(kernel, 1, 64, 2 * (16 * 32 + 32 * 16) * sizeof(Bits), args);
    const auto c = Download<float>(args.c, 16 * 32), d = Download<float>(args.d, 16 * 16);
    const auto sums = Download<float>(args.sums, 16), highest = Download<float>(args.highest, 16);
    for (size_t m = 0; m < 16; ++m) {
      double sum = 0;
      float high = -INFINITY;
      for (size_t n = 0; n < 32; ++n) {
        double want = 0;
        for (size_t k = 0; k < 64; ++k)
          want += static_cast<double>(F::Get(a[m * 64 + k])) * F::Get(b[n * 64 + k]);
        EXPECT_NEAR(c[m * 32 + n], want, 2e-5) << m << ", " << n;  // 64 terms of at most 1
        sum += c[m * 32 + n];
        high = std::max(high, c[m * 32 + n]);
      }
      EXPECT_NEAR(sums[m], sum, 1e-4);
      EXPECT_EQ(highest[m], high);
      for (size_t n = 0; n < 16; ++n) {
        double want = 0;
        for (size_t k = 0; k < 32; ++k)
          want += static_cast<double>(F::Get(F::Put(c[m * 32 + k]))) * F::Get(v[k * 16 + n]);
        EXPECT_NEAR(d[m * 16 + n], want, 1e-4) << m << ", " << n;  // 32 terms of at most 10
      }
    }
  }
};
TEST_P(Products, OfBrainFloats) { Try<Brain>("product_bf16"); }
TEST_P(Products, OfHalves) { Try<Half>("product_f16"); }
TEST_P(Products, OfFloats) { Try<float>("product_f32"); }

std::string NameOf(const testing::TestParamInfo<const char*>& info) { return info.param; }
INSTANTIATE_TEST_SUITE_P(Amd, Words, testing::Values("gfx1200", "gfx1100", "gfx942"), NameOf);
INSTANTIATE_TEST_SUITE_P(Amd, Products, testing::Values("gfx1200", "gfx1100", "gfx942"), NameOf);

}  // namespace
}  // namespace vt::gpu
