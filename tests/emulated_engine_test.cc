// Whole models on the emulated GPU, with waves of 32 and of 64: against transformers' logits,
// captured against eager, and what happens when memory runs out or the device is lost.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "base/os/file.h"
#include "base/os/module.h"
#include "base/strings.h"
#include "tests/engine_sink.h"
#include "tests/model_forward.h"
#include "tests/model_golden.h"
#include "tests/server_testing.h"
#include "vllm/engine/engine_stats.h"
#include "vllm/engine/llm.h"

namespace vllm {
namespace {

using testing::ModelGolden;

const std::string kModules = std::string(VLLM_BINARY_DIR) + "/examples";

struct Report {
  std::string left;  // what the last device has left behind, or complained of
  int64_t calls = 0, kernels = 0;
};

// Of the device opened last in this program.
Report ReportOf(const std::string& device) {
  Report r;
  auto module = base::os::OpenModule(kModules + "/libvt_" + device + ".so");
  if (!module) return {module.error().message};
  const auto symbol = base::os::FindSymbol(*module, "vt_emulated_report");
  if (!symbol) return {symbol.error().message};
  r.left = reinterpret_cast<const char* (*)(int64_t*, int64_t*)>(*symbol)(&r.calls, &r.kernels);
  return r;
}

// --- every family against transformers

struct GoldenCase {
  std::string model, device, dtype;
  double tolerance;
};

class ModelEmulated : public ::testing::TestWithParam<GoldenCase> {};

TEST_P(ModelEmulated, EqualsTransformers) {
  const auto& [name, device, dtype, tolerance] = GetParam();
  const ModelGolden golden = testing::LoadGolden(name);
  ASSERT_GE(golden.prompts.size(), 2u);
  const double worst = testing::WorstErrorOn(golden, device, dtype);
  EXPECT_LE(worst, tolerance);
  RecordProperty("worst", fmt::format("{:.2e}", worst));
  EXPECT_EQ(ReportOf(device).left, "");
}

std::vector<GoldenCase> GoldenCases() {
  std::vector<GoldenCase> cases;
  // As on CPUs: f32 sums in another order. Each wave runs every other family.
  int i = 0;
  for (const std::string& name : testing::GoldenNames())
    cases.push_back({name, i++ % 2 == 0 ? "emulated" : "emulated64", "float32", 2e-4});
  // f16 values between nodes: 2^-12 for each of some fifty roundings, not all in one direction.
  for (const char* name : {"qwen3", "llama_tied", "gemma3"})
    cases.push_back({name, "emulated64", "float16", 50 * 0x1p-12});
  // bf16: 1.5 times what it costs transformers, where no tie of experts makes that chance.
  for (const std::string& name : testing::GoldenNames()) {
    const ModelGolden golden = testing::LoadGolden(name);
    if (golden.bf16_error > 0)
      cases.push_back({name, "emulated", "bfloat16", 1.5 * golden.bf16_error});
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Tiny, ModelEmulated, ::testing::ValuesIn(GoldenCases()),
                         [](const auto& info) {
                           const GoldenCase& c = info.param;
                           return c.model + "_" + c.device + "_" + c.dtype;
                         });

// --- quantised weights as they are stored

std::vector<std::string> QuantisedNames() {
  std::vector<std::string> names;
  for (const std::string& name : testing::GoldenNames()) {
    const auto config = base::os::ReadFile(testing::GoldenFolder() + "/" + name + "/config.json");
    if (config && config->find("quantization_config") != std::string::npos) names.push_back(name);
  }
  return names;
}

class QuantisedEmulated : public ::testing::TestWithParam<std::string> {};

// Rows are int8 blocks before some ten linears, each of which costs 0.5 %, and bf16 between nodes:
// 2 % of the largest logit. Where that chooses other experts a position may have any error, so the
// middle one of a prompt's positions is what is asked for.
TEST_P(QuantisedEmulated, InBFloat16MostPositionsAreCloseToTransformers) {
  const ModelGolden golden = testing::LoadGolden(GetParam());
  engine::LoadOptions o = testing::CardOptions(golden, "emulated", "bfloat16");
  o.max_num_batched_tokens = 33;
  auto llm = engine::Llm::Load(o);
  ASSERT_TRUE(llm) << llm.error().message;
  const auto longest =
      std::max_element(golden.prompts.begin(), golden.prompts.end(),
                       [](const auto& a, const auto& b) { return a.size() < b.size(); });
  // A prefill of more tokens than are int8 rows, few tokens, single ones.
  const std::vector<int64_t> cuts = {33, 5, 1};
  const std::vector<float> rows = testing::Forward(**llm, *longest, cuts);
  const std::vector<float>& expected =
      golden.logits[static_cast<size_t>(longest - golden.prompts.begin())];
  ASSERT_EQ(rows.size(), expected.size());
  const auto vocab = static_cast<size_t>(golden.vocab);
  std::vector<double> errors;
  for (size_t at = 0; at < rows.size(); at += vocab) {
    errors.push_back(testing::RelativeError(std::span(rows).subspan(at, vocab),
                                            std::span(expected).subspan(at, vocab), golden.vocab));
  }
  ASSERT_GE(errors.size(), 30u);
  std::sort(errors.begin(), errors.end());
  EXPECT_LE(errors[errors.size() / 2], 0.04);
  RecordProperty("median", fmt::format("{:.2e}", errors[errors.size() / 2]));
  llm->reset();
  EXPECT_EQ(ReportOf(o.device).left, "");
}

INSTANTIATE_TEST_SUITE_P(Tiny, QuantisedEmulated, ::testing::ValuesIn(QuantisedNames()),
                         [](const auto& info) { return info.param; });

// --- captured and eager

engine::LoadOptions Options(const std::string& device, const std::string& plan = "") {
  engine::LoadOptions o;
  o.model = std::string(VLLM_SOURCE_DIR) + "/tests/goldens/models/llama_tied";
  o.device = device;
  o.isa = plan;
  o.max_model_len = 64;
  o.max_num_seqs = 2;
  o.max_num_batched_tokens = 16;
  o.kv_cache_memory = 1 << 20;
  o.module_folders = {kModules};
  return o;
}

// The answer to one prompt, greedily.
base::Result<std::vector<int32_t>> Answer(engine::Llm& llm, int64_t count) {
  engine::SamplingParams params;
  params.temperature = 0;
  params.max_tokens = count;
  params.ignore_eos = true;
  auto c = llm.Generate(std::vector<int32_t>{1, 2, 3, 4, 5}, params, {});
  if (!c) return c.error();
  return c->ids;
}

class EmulatedEngine : public ::testing::TestWithParam<const char*> {};

TEST_P(EmulatedEngine, ReplayedStepsGiveTheTokensOfEagerOnes) {
  std::vector<std::vector<int32_t>> answers;
  for (const bool eager : {true, false}) {
    engine::LoadOptions o = Options(GetParam());
    o.enforce_eager = eager;
    auto llm = engine::Llm::Load(o);
    ASSERT_TRUE(llm) << llm.error().message;
    auto ids = Answer(**llm, 20);
    ASSERT_TRUE(ids) << ids.error().message;
    answers.push_back(*ids);
    llm->reset();
    EXPECT_EQ(ReportOf(GetParam()).left, "");
  }
  EXPECT_EQ(answers[0].size(), 20u);
  EXPECT_EQ(answers[0], answers[1]);
}

INSTANTIATE_TEST_SUITE_P(Waves, EmulatedEngine, ::testing::Values("emulated", "emulated64"),
                         [](const auto& info) { return std::string(info.param); });

// --- when things go wrong

// Loads and answers under a plan of faults. "" when all went well, else the error.
std::string Try(const std::string& plan) {
  auto llm = engine::Llm::Load(Options("emulated", plan));
  if (!llm) return llm.error().message;
  auto ids = Answer(**llm, 3);
  return ids ? "" : ids.error().message;
}

// The n-th call of the kind fails, for every n that a start and some steps reach (every
// `stride`-th).
void FailEach(const std::string& kind, int64_t stride, int64_t at_least) {
  int64_t failed = 0;
  for (int64_t n = 1;; n += stride) {
    const std::string error = Try(fmt::format("fail={}:{}", kind, n));
    const Report report = ReportOf("emulated");
    EXPECT_EQ(report.left, "") << kind << " " << n << ": " << error;
    if (error.empty()) break;
    ++failed;
    ASSERT_LT(n, 100000);
  }
  EXPECT_GE(failed, at_least);
}

TEST(EmulatedFaults, MemoryThatRunsOutAtAnyAllocationIsACleanRefusal) {
  FailEach("Allocate", 1, 6);
  FailEach("AllocateHost", 1, 2);
}

TEST(EmulatedFaults, AnyCallThatFailsLeavesNothingBehind) {
  int64_t calls = 0;
  ASSERT_EQ(Try(""), "");
  calls = ReportOf("emulated").calls;
  ASSERT_GT(calls, 100);
  // 40 places, of all kinds of calls.
  int failed = 0;
  for (int64_t i = 0; i < 40; ++i) {
    const int64_t n = 1 + i * (calls - 1) / 39;
    const std::string error = Try(fmt::format("fail=any:{}", n));
    EXPECT_EQ(ReportOf("emulated").left, "") << "call " << n << ": " << error;
    failed += !error.empty();
  }
  // A question after free memory may be answered without an error, and a step that could not be
  // captured runs all the same.
  EXPECT_GE(failed, 20);
}

TEST(EmulatedFaults, ADeviceTooSmallIsRefusedWithNumbers) {
  engine::LoadOptions o = Options("emulated", "memory=100000");
  o.kv_cache_memory = 0;
  const auto llm = engine::Llm::Load(o);
  ASSERT_FALSE(llm);
  EXPECT_NE(llm.error().message.find("KiB"), std::string::npos) << llm.error().message;
  EXPECT_EQ(ReportOf("emulated").left, "");
}

TEST(EmulatedFaults, APlanThatNobodyKnowsIsRefused) {
  EXPECT_NE(Try("fail=Nothing:1").find("knows no plan"), std::string::npos);
}

// A step's kernel, after the start's: the device is lost in the middle of an answer.
int64_t KernelsOfStart() {
  const auto llm = engine::Llm::Load(Options("emulated"));
  if (!llm) ADD_FAILURE() << llm.error().message;
  return ReportOf("emulated").kernels;
}

TEST(EmulatedFaults, ADeviceLostInAStepEndsEveryRequestAndTheEngine) {
  const int64_t start = KernelsOfStart();
  testing::Collector sink;
  auto e = engine::Engine::Load(Options("emulated", fmt::format("lose={}", start + 150)), sink);
  ASSERT_TRUE(e) << e.error().message;
  engine::Request r;
  r.prompt = {1, 2, 3};
  r.sampling.temperature = 0;
  r.sampling.max_tokens = 60;
  r.sampling.ignore_eos = true;
  const auto first = (*e)->Submit(r);
  const auto second = (*e)->Submit(r);
  ASSERT_TRUE(first && second);
  for (const engine::RequestId id : {*first, *second}) {
    const testing::Answer a = sink.Wait(id);
    EXPECT_EQ(a.finish, engine::FinishReason::kError);
    EXPECT_NE(a.error.find("the device was lost"), std::string::npos) << a.error;
  }
  EXPECT_NE(sink.died().find("the device was lost"), std::string::npos) << sink.died();
  const auto late = (*e)->Submit(r);
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, base::Code::kUnavailable);
  e->reset();
  // What had to be given back while the device was lost complains of that alone.
  const std::string left = ReportOf("emulated").left;
  EXPECT_EQ(left.find("left:"), std::string::npos) << left;
}

TEST(EmulatedFaults, AServerWhoseDeviceIsLostSaysSo) {
  const int64_t start = KernelsOfStart();
  tests::RunningServer server(Options("emulated", fmt::format("lose={}", start + 150)));
  ASSERT_TRUE(server.ok());
  const tests::Answer a = server.Post(
      "/v1/completions", R"({"prompt":[1,2,3],"max_tokens":60,"ignore_eos":true,"temperature":0})");
  EXPECT_EQ(a.status, 500) << a.body;
  EXPECT_EQ(server.Get("/health").status, 503);
  EXPECT_EQ(server.Post("/v1/completions", R"({"prompt":[1],"max_tokens":1})").status, 503);
}

}  // namespace
}  // namespace vllm
