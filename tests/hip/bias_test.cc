// The kernel that writes a bias before a library's product adds to it, as compiled AMD code on the
// emulator of instructions: no case of the op table runs it there, since no library is at hand.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>

#include "tests/hip/stand_in.h"
#include "vt/gpu/args_linear.h"
#include "vt/gpu/embedded_code.h"
#include "vt/gpu/vendor_driver.h"
#include "vt/ir/quant.h"

namespace vt::gpu {
std::span<const EmbeddedCode> BiasCode();

namespace {

class Bias : public testing::TestWithParam<const char*> {};

// A piece of 300 columns behind 5 others, in two rows of the three that the bucket has.
TEST_P(Bias, IsWrittenIntoTheRowsThatAreReal) {
  if (!hip_stand_in_emulates())
    GTEST_SKIP() << "TINYGRAD names no checkout of the emulator of instructions";
  setenv("HIP_STAND_IN_ARCH", GetParam(), 1);
  const std::unique_ptr<Driver> driver = MakeVendorDriver(Vendor::kRocm, {HIP_STAND_IN});
  const base::Result<DeviceProperties> p = driver->Properties(0);
  ASSERT_TRUE(p) << p.error().message;
  if (p->arch != GetParam()) GTEST_SKIP() << "the card of this process is a " << p->arch;
  ASSERT_TRUE(driver->Open(0));
  Stream stream = *driver->CreateStream();
  Module module = nullptr;
  for (const EmbeddedCode& code : BiasCode()) {
    if (code.arch == GetParam()) module = *driver->LoadModule(code.bytes);
  }
  if (module == nullptr) GTEST_SKIP() << "this build has no code for it";
  constexpr int kColumns = 300, kFirst = 5, kStride = 320, kRows = 3, kReal = 2;
  std::vector<float> bias(kColumns);
  for (int i = 0; i < kColumns; ++i)
    bias[static_cast<size_t>(i)] = 0.37f * static_cast<float>(i) - 40;
  const auto upload = [&](const void* data, int64_t bytes) {
    void* p = *driver->Allocate(bytes);
    EXPECT_TRUE(driver->CopyToDevice(stream, p, data, bytes));
    return p;
  };
  const Header header = {.tokens = kReal, .requests = 1, .outputs = 1, .table_stride = 1};
  for (const auto type : {ir::DType::kBF16, ir::DType::kF16, ir::DType::kF32}) {
    for (const bool f32 : {false, true}) {
      const ir::DType out_type = f32 ? ir::DType::kF32 : type;
      const int64_t bytes = ir::Bytes(out_type, kStride * kRows);
      const std::vector<char> before(static_cast<size_t>(bytes), 0x55);
      LinearBiasArgs a;
      a.header = static_cast<const Header*>(upload(&header, sizeof header));
      a.out = {.base = upload(before.data(), bytes), .stride = kStride, .width = kStride};
      a.segment.bias = static_cast<const float*>(upload(bias.data(), kColumns * 4));
      a.segment.rows = kColumns;
      a.segment.column = kFirst;
      a.count.of = Of::kTokens;
      a.out_f32 = f32 ? 1 : 0;
      const base::Result<Function> f =
          driver->FindFunction(module, ("linear_bias_" + std::string(ir::Name(type))).c_str());
      ASSERT_TRUE(f) << f.error().message;
      ASSERT_TRUE(
          driver->Launch(stream,
                         {.function = *f,
                          .grid_x = (kColumns + kLinearBiasThreads - 1) / kLinearBiasThreads,
                          .grid_y = kRows,
                          .threads = kLinearBiasThreads},
                         &a, sizeof a));
      std::vector<char> after(before.size());
      ASSERT_TRUE(driver->CopyToHost(stream, after.data(), a.out.base, bytes));
      ASSERT_TRUE(driver->Synchronize(stream));
      std::vector<char> want = before, piece(static_cast<size_t>(ir::Bytes(out_type, kColumns)));
      ir::Quantize(out_type, bias.data(), piece.data(), kColumns);
      for (int row = 0; row < kReal; ++row)
        std::memcpy(want.data() + ir::Bytes(out_type, row * kStride + kFirst), piece.data(),
                    piece.size());
      EXPECT_EQ(after, want) << ir::Name(type) << (f32 ? ", f32" : "");
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Amd, Bias, testing::Values("gfx1200", "gfx1100", "gfx942"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace vt::gpu
