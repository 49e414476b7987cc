// Every op case on the emulated GPU, with waves of 32 and of 64: the kernels that CUDA and ROCm
// run. A test is a family of cases ("linear") in one type of values.
//
// Emulating costs CPU time, so each wave runs the whole table once in f32, as lowered with all
// passes or without, and a quarter of it in 16 bits.
#include <gtest/gtest.h>

#include <set>

#include "tests/op_cases.h"
#include "tests/seam.h"
#include "vt/device/registry.h"

namespace tests {
namespace {

const char* const kModules = VLLM_BINARY_DIR "/examples";

const std::vector<OpCase>& Cases() {
  static const std::vector<OpCase> cases = OpCases();
  return cases;
}

std::string FamilyOf(const OpCase& c) { return c.name.substr(0, c.name.find('.')); }

std::vector<std::string> Families() {
  std::set<std::string> families;
  for (const OpCase& c : Cases()) families.insert(FamilyOf(c));
  return {families.begin(), families.end()};
}

std::unique_ptr<vt::Backend> Open(const vt::DeviceRegistry& registry, const char* device,
                                  const char* dtype) {
  const auto found = registry.Find(device);
  if (!found) {
    ADD_FAILURE() << found.error().message;
    return nullptr;
  }
  vt::Platform::Options options;
  options.dtype = dtype;
  auto backend = found->first->Open(options);
  if (!backend) {
    ADD_FAILURE() << backend.error().message;
    return nullptr;
  }
  return *std::move(backend);
}

struct Variant {
  const char* device;
  const char* dtype;
  bool optimise;
  size_t stride, first;  // which cases of the table
};
const Variant kVariants[] = {{"emulated", "float32", true, 1, 0},
                             {"emulated64", "float32", false, 3, 0},
                             {"emulated", "bfloat16", true, 4, 1},
                             {"emulated64", "float16", true, 4, 3}};

using Param = std::tuple<Variant, std::string>;
class OpEmulated : public testing::TestWithParam<Param> {};

TEST_P(OpEmulated, AgreesWithTheInterpreter) {
  const Variant& variant = std::get<0>(GetParam());
  const std::string& family = std::get<1>(GetParam());
  const vt::DeviceRegistry registry = vt::DeviceRegistry::Load({kModules});
  const std::unique_ptr<vt::Backend> backend = Open(registry, variant.device, variant.dtype);
  ASSERT_NE(backend, nullptr);
  const bool all = family == "expert_choice";  // goes by the wave's size, and is small
  for (size_t i = all ? 0 : variant.first; i < Cases().size(); i += all ? 1 : variant.stride) {
    const OpCase& c = Cases()[i];
    if (FamilyOf(c) != family) continue;
    SCOPED_TRACE(c.name);
    const CaseResult r = RunCase(c, *backend, variant.optimise);
    ASSERT_EQ(r.error, "");
    if (!r.supported && c.optional) continue;
    ASSERT_TRUE(r.supported) << r.why;
    EXPECT_LE(r.max_error, r.tolerance) << "at " << r.worst;
    EXPECT_FALSE(r.worst.empty()) << "nothing was compared";
  }
}

std::string NameOf(const testing::TestParamInfo<Param>& info) {
  const Variant& v = std::get<0>(info.param);
  return std::string(v.device) + "_" + v.dtype + "_" + std::get<1>(info.param);
}

INSTANTIATE_TEST_SUITE_P(Cases, OpEmulated,
                         testing::Combine(testing::ValuesIn(kVariants),
                                          testing::ValuesIn(Families())),
                         NameOf);

// Weights travel through staging of a fixed size.
TEST(RepackEmulated, ARowLongerThanTheStagingIsRefused) {
  const vt::DeviceRegistry registry = vt::DeviceRegistry::Load({kModules});
  const std::unique_ptr<vt::Backend> backend = Open(registry, "emulated", "auto");
  ASSERT_NE(backend, nullptr);
  for (const int64_t columns : {int64_t{4} << 20, (int64_t{4} << 20) + 1}) {
    const std::vector<float> values(static_cast<size_t>(columns), 1.0f);
    const vt::WeightView view{reinterpret_cast<const std::byte*>(values.data()),
                              vt::ir::DType::kF32, 1, columns};
    const vt::ir::WeightLayout layout =
        backend->LayoutFor(vt::ir::DType::kF32, 1, columns, vt::ir::WeightUse::kPlain);
    const auto memory = backend->Allocate(layout.bytes);
    ASSERT_TRUE(memory) << memory.error().message;
    const base::Status done = backend->Repack(view, layout, *memory);
    EXPECT_EQ(done.ok(), columns == int64_t{4} << 20);
    if (!done) {
      EXPECT_NE(done.error().message.find("4194305"), std::string::npos);
    }
    backend->Free(*memory);
  }
}

class SeamEmulated : public testing::TestWithParam<const char*> {};

TEST_P(SeamEmulated, KeepsTheCaptureContract) {
  const vt::DeviceRegistry registry = vt::DeviceRegistry::Load({kModules});
  const std::unique_ptr<vt::Backend> backend = Open(registry, GetParam(), "auto");
  ASSERT_NE(backend, nullptr);
  ASSERT_TRUE(backend->SupportsGraphCapture());
  for (const std::string& breach : CaptureBreaches(*backend)) ADD_FAILURE() << breach;
}

INSTANTIATE_TEST_SUITE_P(Waves, SeamEmulated, testing::Values("emulated", "emulated64"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace tests
