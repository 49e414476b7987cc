// What compiled kernels ask of an AMD card, by their metadata: no private memory, and of
// registers no more than lets the blocks be there at once that kernels/amd_budgets.h wants.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/strings.h"
#include "tests/hip/code_object.h"
#include "vt/gpu/embedded_code.h"
#include "vt/gpu/kernels/amd_budgets.h"

namespace vt::gpu {
std::span<const EmbeddedCode> RocmCode();

namespace {

bool Fits(std::string_view name, std::string_view pattern) {
  if (pattern.ends_with('*')) return name.starts_with(pattern.substr(0, pattern.size() - 1));
  return name == pattern;
}

// Registers of a SIMD a lane, and how finely they are dealt (AMD's instruction set manuals; LLVM's
// AMDGPU usage guide). gfx1102, 1103, 1150: the smaller file.
struct Registers {
  int64_t all, granule, most_waves;
};
Registers RegistersOf(const std::string& arch) {
  if (arch.starts_with("gfx9")) return {512, 8, 8};
  if (arch == "gfx1102" || arch == "gfx1103" || arch == "gfx1150") return {1024, 16, 16};
  return {1536, 24, 16};
}
int64_t WavesASimd(const std::string& arch, int64_t vgprs) {
  const Registers r = RegistersOf(arch);
  const int64_t taken = std::max<int64_t>(1, (vgprs + r.granule - 1) / r.granule) * r.granule;
  return std::min(r.most_waves, r.all / taken);
}

class Code : public testing::TestWithParam<EmbeddedCode> {};

TEST_P(Code, FitsTheCard) {
  const EmbeddedCode& code = GetParam();
  const base::Result<hip::CodeObject> object = hip::ParseCodeObject(code.bytes);
  ASSERT_TRUE(object) << object.error().message;
  EXPECT_EQ(object->arch, code.arch);
  ASSERT_FALSE(object->kernels.empty());
  for (const hip::KernelMetadata& k : object->kernels) {
    SCOPED_TRACE(fmt::format("{} on {}: {} vector and {} scalar registers, {} threads", k.name,
                             object->arch, k.vgprs, k.sgprs, k.most_threads));
    EXPECT_EQ(k.wave, object->arch.starts_with("gfx9") ? 64 : 32);
    // Scalars that are too many stay in lanes of vector registers, which are counted, not in
    // memory: uniform values that are there from a kernel's beginning to its end.
    EXPECT_LE(k.sgpr_spills, 3 * k.wave);
    // Attention of f32, which is for checking, indexes its sums, in memory: code of a plain product
    // is long, and there is one copy of it.
    const bool attention = Fits(k.name, "attention_decode*") || Fits(k.name, "attention_latent*") ||
                           Fits(k.name, "attention_wide*");
    const bool indexes = attention && k.name.ends_with("_f32");
    if (!indexes) {
      EXPECT_EQ(k.vgpr_spills, 0);
      EXPECT_EQ(k.private_bytes, 0) << "scratch memory: an array that is indexed";
    }
    EXPECT_LE(k.shared_bytes, 64 << 10);
    const int64_t block_waves = (k.most_threads + k.wave - 1) / k.wave;
    const int64_t here = 4 * WavesASimd(object->arch, k.vgprs) / block_waves;
    EXPECT_GE(here, 1) << "a block does not fit on a unit at all";
    if (const AmdBudget* b = BudgetOf(k.name); b != nullptr)
      EXPECT_GE(here, k.wave == 64 ? b->cdna : b->rdna) << "its budget (kernels/amd_budgets.h)";
  }
}

INSTANTIATE_TEST_SUITE_P(Amd, Code, testing::ValuesIn(RocmCode().begin(), RocmCode().end()),
                         [](const auto& info) {
                           return std::string(info.param.file) + "_" + std::string(info.param.arch);
                         });

TEST(Budgets, EveryLineFitsAKernel) {
  std::set<std::string> names;
  for (const EmbeddedCode& code : RocmCode()) {
    const base::Result<hip::CodeObject> object = hip::ParseCodeObject(code.bytes);
    ASSERT_TRUE(object);
    for (const hip::KernelMetadata& k : object->kernels) names.insert(k.name);
  }
  for (const AmdBudget& b : kAmdBudgets) {
    EXPECT_TRUE(std::any_of(names.begin(), names.end(), [&](const std::string& n) {
      return Fits(n, b.kernel);
    })) << b.kernel;
  }
}

TEST(CodeObject, RefusesWhatIsNone) {
  std::vector<std::byte> bytes(RocmCode()[0].bytes.begin(), RocmCode()[0].bytes.end());
  for (const size_t size : {size_t{0}, size_t{63}, size_t{200}, size_t{700}}) {
    EXPECT_FALSE(hip::ParseCodeObject(std::span(bytes).first(size))) << size;
  }
  bytes[0] = std::byte{0};
  EXPECT_FALSE(hip::ParseCodeObject(bytes));
}

}  // namespace
}  // namespace vt::gpu
