// The unmodified ROCm module on the stand-in for the HIP runtime: the capture contract, and with
// the emulator of instructions the op table.
//
// The stand-in is one card a process, so ctest runs each case in its own; TINYGRAD names the
// emulator's folder.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <set>

#include "base/strings.h"
#include "tests/hip/rocm_testing.h"
#include "tests/op_cases.h"
#include "tests/seam.h"
#include "vt/device/registry.h"
#include "vt/gpu/kernels/amd_budgets.h"

namespace tests {
namespace {

std::unique_ptr<vt::Backend> Open(const vt::DeviceRegistry& registry, const std::string& dtype) {
  const auto found = registry.Find("rocm");
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

// --- the capture contract
class SeamRocm : public testing::TestWithParam<const char*> {};

TEST_P(SeamRocm, KeepsTheCaptureContract) {
  if (!IsBuilt(GetParam())) GTEST_SKIP() << "this build has no code for it";
  UseStandIn(GetParam());
  {
    const vt::DeviceRegistry registry = vt::DeviceRegistry::Load({kModules});
    const std::unique_ptr<vt::Backend> backend = Open(registry, "auto");
    ASSERT_NE(backend, nullptr);
    EXPECT_TRUE(backend->SupportsGraphCapture());
    for (const std::string& breach : CaptureBreaches(*backend)) ADD_FAILURE() << breach;
  }
  EXPECT_GT(hip_stand_in_count("hipGraphLaunch"), 0);
  EXPECT_EQ(hip_stand_in_count("live"), 0) << "handles or memory were not given back";
}
INSTANTIATE_TEST_SUITE_P(Amd, SeamRocm, testing::ValuesIn(kArchs),
                         [](const auto& info) { return std::string(info.param); });

// --- ranges for profilers
class RangesRocm : public testing::TestWithParam<bool> {};

TEST_P(RangesRocm, AreNamedAfterNodesWhereTheyAreWanted) {
  UseStandIn("gfx1200");
  if (GetParam()) setenv("VLLM_NVTX_SCOPES_FOR_PROFILING", "1", 1);
  const std::vector<OpCase> cases = OpCases();
  const auto c = std::find_if(cases.begin(), cases.end(),
                              [](const OpCase& o) { return o.name.starts_with("rms_norm."); });
  ASSERT_NE(c, cases.end());
  {
    const vt::DeviceRegistry registry = vt::DeviceRegistry::Load({kModules});
    const std::unique_ptr<vt::Backend> backend = Open(registry, "bfloat16");
    ASSERT_NE(backend, nullptr);
    RunCase(*c, *backend, false);  // without the emulator nothing right comes out
  }
  const std::string range = "range " + c->graph.nodes.front().name;
  EXPECT_EQ(hip_stand_in_count(range.c_str()) > 0, GetParam()) << range;
  EXPECT_EQ(hip_stand_in_count("roctxRangePop"), hip_stand_in_count("roctxRangePushA"));
  EXPECT_EQ(hip_stand_in_count("live"), 0) << "a range was not closed";
}
INSTANTIATE_TEST_SUITE_P(Amd, RangesRocm, testing::Bool(), [](const auto& info) {
  return std::string(info.param ? "gfx1200_wanted" : "gfx1200_not_wanted");
});

// --- the op table
const std::vector<OpCase>& Cases() {
  static const std::vector<OpCase> cases = OpCases();
  return cases;
}
const char* const kTypes[] = {"bfloat16", "float16", "float32"};
std::string FamilyOf(const OpCase& c) { return c.name.substr(0, c.name.find('.')); }
std::vector<std::string> Families() {
  std::set<std::string> families;
  for (const OpCase& c : Cases()) families.insert(FamilyOf(c));
  return {families.begin(), families.end()};
}

// VLLM_OP_CASES, names between colons, picks cases: a run of few can be repeated, and one that dies
// loses only those.
bool IsWanted(const OpCase& c) {
  const char* names = std::getenv("VLLM_OP_CASES");
  return names == nullptr ||
         (":" + std::string(names) + ":").find(":" + c.name + ":") != std::string::npos;
}

using Param = std::tuple<const char*, const char*, std::string>;  // architecture, type, family
class OpRocm : public testing::TestWithParam<Param> {};

TEST_P(OpRocm, AgreesWithTheInterpreterAsMachineCode) {
  if (!hip_stand_in_emulates())
    GTEST_SKIP() << "TINYGRAD names no checkout of the emulator of instructions";
  const auto& [arch, dtype, family] = GetParam();
  if (!IsBuilt(arch)) GTEST_SKIP() << "this build has no code for it";
  UseStandIn(arch);
  const vt::DeviceRegistry registry = vt::DeviceRegistry::Load({kModules});
  const std::unique_ptr<vt::Backend> backend = Open(registry, dtype);
  ASSERT_NE(backend, nullptr);
  int cases = 0;
  for (const OpCase& c : Cases()) {
    if (FamilyOf(c) != family || !IsWanted(c)) continue;
    SCOPED_TRACE(c.name);
    const CaseResult r = RunCase(c, *backend, true);
    ASSERT_EQ(r.error, "") << "largest error " << r.max_error << " at " << r.worst;
    if (!r.supported && c.optional) continue;
    ASSERT_TRUE(r.supported) << r.why;
    EXPECT_LE(r.max_error, r.tolerance) << "at " << r.worst;
    EXPECT_FALSE(r.worst.empty()) << "nothing was compared";
    ++cases;
  }
  const bool cdna = std::string_view(arch).starts_with("gfx9");
  for (const std::string& line : base::Split(hip_stand_in_shared(), '\n')) {
    const size_t space = line.find(' ');
    const vt::gpu::AmdBudget* b = vt::gpu::BudgetOf(line.substr(0, space));
    if (space == std::string::npos || b == nullptr) continue;
    EXPECT_LE((cdna ? b->cdna : b->rdna) * std::stoll(line.substr(space)),
              cdna ? vt::gpu::kCdnaSharedBytes : vt::gpu::kRdnaSharedBytes)
        << "the shared memory that " << line << " may take (kernels/amd_budgets.h)";
  }
  RecordProperty("cases", cases);
  RecordProperty("kernels", std::to_string(hip_stand_in_count("kernels")));
}
std::string NameOf(const testing::TestParamInfo<Param>& info) {
  const auto& [arch, dtype, family] = info.param;
  return std::string(arch) + "_" + dtype + "_" + family;
}
INSTANTIATE_TEST_SUITE_P(Amd, OpRocm,
                         testing::Combine(testing::ValuesIn(kArchs), testing::ValuesIn(kTypes),
                                          testing::ValuesIn(Families())),
                         NameOf);

// --- which kernels the op table runs
class KernelsRocm : public testing::TestWithParam<const char*> {};

// With HIP_STAND_IN_REPORT it also says which case runs which kernels.
TEST_P(KernelsRocm, EachIsRunByACaseOfTheOpTable) {
  if (hip_stand_in_emulates()) GTEST_SKIP() << "this is about launches, and OpRocm does them";
  if (!IsBuilt(GetParam())) GTEST_SKIP() << "this build has no code for it";
  UseStandIn(GetParam());
  const vt::DeviceRegistry registry = vt::DeviceRegistry::Load({kModules});
  for (const char* dtype : kTypes) {
    const std::unique_ptr<vt::Backend> backend = Open(registry, dtype);
    ASSERT_NE(backend, nullptr);
    for (const OpCase& c : Cases()) {
      hip_stand_in_part(fmt::format("{}.{}", dtype, c.name).c_str());
      ASSERT_EQ(RunCase(c, *backend, true, kLaunchOnly).error, "") << c.name;
    }
  }
  std::string idle;
  for (const std::string_view kernel : base::Split(hip_stand_in_idle(), '\n')) {
    // Those stand before a library's products, which no case has here: bias_test.cc.
    if (!kernel.empty() && !kernel.starts_with("linear_bias_")) idle += fmt::format("{} ", kernel);
  }
  EXPECT_EQ(idle, "");
}
INSTANTIATE_TEST_SUITE_P(Amd, KernelsRocm, testing::ValuesIn(kArchs),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace tests
