// Every family on the cards of this machine: against transformers' logits, and captured against
// eager. Where there is no card the emulated GPU stands for it: emulated_engine_test.cc.
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>

#include "base/strings.h"
#include "tests/cards.h"
#include "tests/model_forward.h"
#include "tests/model_golden.h"
#include "vllm/engine/llm.h"

namespace vllm {
namespace {

using testing::ModelGolden;

using Param = std::tuple<std::string, std::string>;  // golden, card

std::string NameOf(const ::testing::TestParamInfo<Param>& info) {
  std::string name = std::get<0>(info.param) + "_" + std::get<1>(info.param);
  std::replace(name.begin(), name.end(), ':', '_');
  return name;
}

class CardTest : public ::testing::TestWithParam<Param> {
 protected:
  void SetUp() override { golden_ = testing::LoadGolden(std::get<0>(GetParam())); }

  engine::LoadOptions OptionsOf(const std::string& dtype, int64_t length) const {
    engine::LoadOptions o = testing::Float32Options(
        golden_.path, golden_.context_is_prompt_length ? length : int64_t{64});
    o.device = std::get<1>(GetParam());
    o.dtype = dtype;
    if (dtype != "float32") o.kv_cache_dtype = "auto";
    o.kv_cache_memory = 16 << 20;
    o.max_num_batched_tokens = 32;
    return o;
  }

  // The worst error of all prompts: a prefill, chunks, single tokens, in turn.
  double Worst(const std::string& dtype) {
    std::unique_ptr<engine::Llm> llm;
    double worst = 0;
    for (size_t p = 0; p < golden_.prompts.size(); ++p) {
      if (!llm || golden_.context_is_prompt_length) {
        llm.reset();
        auto loaded =
            engine::Llm::Load(OptionsOf(dtype, static_cast<int64_t>(golden_.prompts[p].size())));
        if (!loaded) {
          ADD_FAILURE() << loaded.error().message;
          return 1;
        }
        llm = *std::move(loaded);
      }
      const std::vector<int64_t> cuts =
          std::vector<std::vector<int64_t>>{{32}, {3, 1, 7, 2, 16, 5}, {1}}[p % 3];
      const std::vector<float> rows = testing::Forward(*llm, golden_.prompts[p], cuts);
      worst = std::max(worst, testing::RelativeError(rows, golden_.logits[p], golden_.vocab));
    }
    std::cout << dtype << ": worst error " << worst << "\n";
    return worst;
  }

  ModelGolden golden_;
};

TEST_P(CardTest, Float32EqualsTransformers) { EXPECT_LE(Worst("float32"), 2e-4); }

// Within 1.5 times what bf16 costs transformers itself.
TEST_P(CardTest, BFloat16IsAsCloseAsTransformers) {
  if (golden_.bf16_error == 0) GTEST_SKIP() << "a tie of experts makes it chance";
  EXPECT_LE(Worst("bfloat16"), 1.5 * golden_.bf16_error);
}

TEST_P(CardTest, ReplayedStepsGiveTheTokensOfEagerOnes) {
  if (golden_.context_is_prompt_length) GTEST_SKIP() << "its context is its prompt's length";
  std::vector<std::vector<int32_t>> answers;
  for (const bool eager : {true, false}) {
    engine::LoadOptions o = OptionsOf("bfloat16", 64);
    o.score_prompts = false;
    o.enforce_eager = eager;
    auto llm = engine::Llm::Load(o);
    ASSERT_TRUE(llm) << llm.error().message;
    engine::SamplingParams params;
    params.temperature = 0;
    params.max_tokens = 24;
    params.ignore_eos = true;
    const auto answer = (*llm)->Generate(golden_.prompts[1], params, {});
    ASSERT_TRUE(answer) << answer.error().message;
    answers.push_back(answer->ids);
  }
  EXPECT_EQ(answers[0].size(), 24u);
  EXPECT_EQ(answers[0], answers[1]);
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(CardTest);
INSTANTIATE_TEST_SUITE_P(Tiny, CardTest,
                         ::testing::Combine(::testing::ValuesIn(testing::GoldenNames()),
                                            ::testing::ValuesIn(testing::Cards())),
                         NameOf);

TEST(Cards, AreThereOrNot) {
  if (testing::Cards().empty()) GTEST_SKIP() << "no card is here";
}

}  // namespace
}  // namespace vllm
