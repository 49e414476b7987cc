// Whole models on the unmodified ROCm module and the stand-in for the HIP runtime: buckets are
// warmed and captured, and with the emulator of instructions tokens are the CPU's.
//
// The stand-in is one card a process, so ctest runs each case in its own; TINYGRAD names the
// emulator's folder.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

#include "tests/hip/rocm_testing.h"
#include "tests/programs_testing.h"
#include "vllm/engine/llm.h"

namespace tests {
namespace {

// --- whole models
vllm::engine::LoadOptions Options(const std::string& model, const std::string& device) {
  vllm::engine::LoadOptions o;
  o.model = std::string(VLLM_SOURCE_DIR) + "/tests/goldens/models/" + model;
  o.device = device;
  o.dtype = "float32";
  o.max_model_len = 32;
  o.max_num_seqs = 2;
  o.max_num_batched_tokens = 8;
  o.kv_cache_memory = 1 << 20;
  o.module_folders = {kModules};
  return o;
}

using ModelParam = std::tuple<const char*, const char*>;  // architecture, model
class ModelRocm : public testing::TestWithParam<ModelParam> {};

// Without the emulator kernels compute nothing, and this is about launches and captures alone.
TEST_P(ModelRocm, WarmsAndCapturesItsBuckets) {
  const auto& [arch, model] = GetParam();
  if (!IsBuilt(arch)) GTEST_SKIP() << "this build has no code for it";
  if (hip_stand_in_emulates()) GTEST_SKIP() << "the next test does this and more";
  UseStandIn(arch);
  {
    auto llm = vllm::engine::Llm::Load(Options(model, "rocm"));
    ASSERT_TRUE(llm) << llm.error().message;
    EXPECT_GT(hip_stand_in_count("kernels"), 0) << "buckets are warmed before they are captured";
    EXPECT_GT(hip_stand_in_count("hipGraphInstantiate"), 0);
    EXPECT_EQ(hip_stand_in_count("hipStreamBeginCapture"),
              hip_stand_in_count("hipGraphInstantiate"))
        << "every capture became a graph";
  }
  EXPECT_EQ(hip_stand_in_count("live"), 0) << "handles or memory were not given back";
}

TEST_P(ModelRocm, DecodesTheCpusTokensThroughReplayedGraphs) {
  if (!hip_stand_in_emulates())
    GTEST_SKIP() << "TINYGRAD names no checkout of the emulator of instructions";
  const auto& [arch, model] = GetParam();
  if (!IsBuilt(arch)) GTEST_SKIP() << "this build has no code for it";
  UseStandIn(arch);
  std::map<std::string, std::vector<int32_t>> tokens;
  for (const char* device : {"cpu", "rocm"}) {
    auto llm = vllm::engine::Llm::Load(Options(model, device));
    ASSERT_TRUE(llm) << llm.error().message;
    const int64_t replays = hip_stand_in_count("hipGraphLaunch");
    vllm::engine::SamplingParams params;
    params.temperature = 0;
    params.max_tokens = 6;
    params.ignore_eos = true;
    const auto answer = (*llm)->Generate(std::vector<int32_t>{1, 2, 3, 4, 5}, params, {});
    ASSERT_TRUE(answer) << answer.error().message;
    tokens[device] = answer->ids;
    if (std::string(device) == "rocm") {
      EXPECT_GE(hip_stand_in_count("hipGraphLaunch") - replays, 5)
          << "decode steps are replays of graphs";
    }
  }
  EXPECT_EQ(tokens["cpu"].size(), 6u);
  EXPECT_EQ(tokens["cpu"], tokens["rocm"]);
  EXPECT_EQ(hip_stand_in_count("live"), 0) << "handles or memory were not given back";
}
INSTANTIATE_TEST_SUITE_P(
    Amd, ModelRocm, testing::Combine(testing::ValuesIn(kArchs), testing::Values("qwen3", "gemma3")),
    [](const auto& info) {
      return std::string(std::get<0>(info.param)) + "_" + std::get<1>(info.param);
    });

// --- where there is no card
using WithoutACard = ProgramsTest;

TEST_F(WithoutACard, TheBenchmarkSaysSo) {
  const std::string command =
      "vllm-bench --model " VLLM_SOURCE_DIR
      "/tests/goldens/models/qwen3 --num-prompts 8 --input-len 128 --output-len 128 "
      "--concurrency 8 --temperature 0";
  setenv("VLLM_HIP_LIBRARY", "libamdhip64-that-is-not-installed.so", 1);
  Refused(command, 1, "no ROCm runtime");
  UseStandIn("none");
  Refused(command, 1, "no card");
}

}  // namespace
}  // namespace tests
