// Every op case on the CPU, with every instruction set that this machine has.
#include <gtest/gtest.h>

#include <set>

#include "base/strings.h"
#include "tests/op_cases.h"
#include "vt/device/registry.h"
#include "vt/ir/fused.h"
#include "vt/ir/passes.h"

namespace tests {
namespace {

const std::vector<OpCase>& Cases() {
  static const std::vector<OpCase> cases = OpCases();
  return cases;
}

base::Result<std::unique_ptr<vt::Backend>> Open(const std::string& isa) {
  static const vt::DeviceRegistry registry = vt::DeviceRegistry::Load();
  const auto found = registry.Find("cpu");
  if (!found) return found.error();
  return found->first->Open({.index = 0, .threads = 2, .isa = isa});
}

const std::vector<std::string> kIsas = {"scalar",      "avx2",        "avx512",
                                        "avx512_vnni", "avx512_bf16", "amx"};

// What this machine has. Only an instruction set that it lacks is an excuse.
std::vector<std::string> Isas(bool here) {
  std::vector<std::string> isas;
  for (const std::string& isa : kIsas) {
    const auto backend = Open(isa);
    const bool lacks = !backend && backend.error().code == base::Code::kUnsupported;
    if (lacks != here) isas.push_back(isa);
  }
  return isas;
}

using Param = std::tuple<size_t, std::string>;

class OpConformance : public testing::TestWithParam<Param> {};

// With instruction sets between the plainest and the best one only as models run, with all passes:
// machines that have many would take long.
TEST_P(OpConformance, AgreesWithTheInterpreter) {
  static const std::vector<std::string> isas = Isas(true);
  const auto& [index, isa] = GetParam();
  const bool between = isa != isas.front() && isa != isas.back();
  const OpCase& c = Cases()[index];
  const auto backend = Open(isa);
  ASSERT_TRUE(backend) << backend.error().message;
  for (const bool optimise : {false, true}) {
    if (between && !optimise) continue;
    const CaseResult r = RunCase(c, **backend, optimise);
    ASSERT_EQ(r.error, "") << (optimise ? "with all passes" : "without passes");
    if (!r.supported && c.optional) GTEST_SKIP() << r.why;
    ASSERT_TRUE(r.supported) << r.why;
    EXPECT_LE(r.max_error, r.tolerance)
        << "at " << r.worst << (optimise ? ", with all passes" : ", without passes");
    EXPECT_FALSE(r.worst.empty()) << "nothing was compared";
  }
}

std::string NameOf(const testing::TestParamInfo<Param>& info) {
  std::string name = Cases()[std::get<0>(info.param)].name + "." + std::get<1>(info.param);
  for (char& ch : name) {
    if (std::isalnum(static_cast<unsigned char>(ch)) == 0) ch = '_';
  }
  return name;
}

INSTANTIATE_TEST_SUITE_P(Cpu, OpConformance,
                         testing::Combine(testing::Range<size_t>(0, Cases().size()),
                                          testing::ValuesIn(Isas(true))),
                         NameOf);

TEST(OpConformanceIsas, NotHere) {
  const std::vector<std::string> lacking = Isas(false);
  ASSERT_LT(lacking.size(), kIsas.size());
  if (!lacking.empty())
    GTEST_SKIP() << "this machine lacks " << fmt::format("{}", fmt::join(lacking, ", "));
}

TEST(OpCases, AllBuildAndHaveDistinctNames) {
  std::set<std::string> names;
  for (const OpCase& c : Cases()) {
    EXPECT_FALSE(c.graph.nodes.empty()) << c.name;
    EXPECT_TRUE(names.insert(c.name).second) << c.name << " is there twice";
  }
}

// A target with int8 activations and every fused op but some.
class EverythingTarget : public vt::ir::Target {
 public:
  std::set<vt::ir::Op> lacks;
  std::string TargetName() const override { return "everything"; }
  bool Supports(const vt::ir::Graph&, const vt::ir::Node& n, const vt::ir::Bucket&) const override {
    return !lacks.contains(n.op);
  }
  int64_t Launches(const vt::ir::Plan& plan) const override { return CountComputed(plan); }
  vt::ir::DType ValueType() const override { return vt::ir::DType::kF32; }
  vt::ir::DType ActivationFormat(vt::ir::DType weight, const vt::ir::Bucket&) const override {
    return vt::ir::IsQuantised(weight) ? vt::ir::DType::kQ8_A32 : vt::ir::DType::kF32;
  }
  vt::ir::WeightLayout LayoutFor(vt::ir::DType f, int64_t rows, int64_t columns,
                                 vt::ir::WeightUse) const override {
    return {"row", rows * vt::ir::Bytes(f, columns)};
  }
  std::string PickKernel(const vt::ir::Graph&, const vt::ir::Node&,
                         const vt::ir::Bucket&) const override {
    return "";
  }
  vt::ir::Rates MachineRates() const override { return {}; }
};

TEST(OpCases, ReachEveryOpOfTheTable) {
  std::set<vt::ir::Op> seen, fused;
  const auto look = [&](const EverythingTarget& target) {
    for (const OpCase& c : Cases()) {
      const vt::ir::Plan plan = Lower(c.graph, target, {.tokens = 1, .requests = 1, .outputs = 1});
      for (const auto& n : plan.graph.nodes) {
        seen.insert(n.op);
        if (vt::ir::IsFused(n.op)) fused.insert(n.op);
      }
    }
  };
  for (const OpCase& c : Cases()) {
    for (const auto& n : c.graph.nodes) seen.insert(n.op);
  }
  // Larger ops hide smaller ones: so without those that were seen too, until nothing new comes.
  EverythingTarget target;
  for (size_t before = SIZE_MAX; before != seen.size();) {
    before = seen.size();
    look(target);
    target.lacks = fused;
  }
  for (int op = 0; op < vt::ir::kOpCount; ++op) {
    const auto o = static_cast<vt::ir::Op>(op);
    // Conversions appear with 16-bit values only, which the CPU does not have.
    if (o == vt::ir::Op::kConvert) continue;
    EXPECT_TRUE(seen.contains(o)) << Name(o);
  }
}

}  // namespace
}  // namespace tests
