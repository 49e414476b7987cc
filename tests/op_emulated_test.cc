// Every op case on the emulated GPU, with waves of 32 and of 64: the kernels that CUDA and ROCm
// run. A test is a family of cases ("linear") in one type of values.
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

using Param = std::tuple<const char*, const char*, std::string>;  // device, type, family
class OpEmulated : public testing::TestWithParam<Param> {};

TEST_P(OpEmulated, AgreesWithTheInterpreter) {
  const auto& [device, dtype, family] = GetParam();
  const vt::DeviceRegistry registry = vt::DeviceRegistry::Load({kModules});
  const std::unique_ptr<vt::Backend> backend = Open(registry, device, dtype);
  ASSERT_NE(backend, nullptr);
  for (const OpCase& c : Cases()) {
    if (FamilyOf(c) != family) continue;
    for (const bool optimise : {false, true}) {
      SCOPED_TRACE(c.name + (optimise ? ", with all passes" : ", without passes"));
      const CaseResult r = RunCase(c, *backend, optimise);
      ASSERT_EQ(r.error, "");
      ASSERT_TRUE(r.supported) << r.why;
      EXPECT_LE(r.max_error, r.tolerance) << "at " << r.worst;
      EXPECT_FALSE(r.worst.empty()) << "nothing was compared";
    }
  }
}

std::string NameOf(const testing::TestParamInfo<Param>& info) {
  const auto& [device, dtype, family] = info.param;
  return std::string(device) + "_" + dtype + "_" + family;
}

INSTANTIATE_TEST_SUITE_P(F32, OpEmulated,
                         testing::Combine(testing::Values("emulated", "emulated64"),
                                          testing::Values("float32"),
                                          testing::ValuesIn(Families())),
                         NameOf);
INSTANTIATE_TEST_SUITE_P(BF16, OpEmulated,
                         testing::Combine(testing::Values("emulated"), testing::Values("bfloat16"),
                                          testing::ValuesIn(Families())),
                         NameOf);
INSTANTIATE_TEST_SUITE_P(F16, OpEmulated,
                         testing::Combine(testing::Values("emulated64"), testing::Values("float16"),
                                          testing::ValuesIn(Families())),
                         NameOf);

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
