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

  double Worst(const std::string& dtype) {
    const double worst = testing::WorstErrorOn(golden_, std::get<1>(GetParam()), dtype);
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
    engine::LoadOptions o = testing::CardOptions(golden_, std::get<1>(GetParam()), "bfloat16");
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
