#include "vllm/engine/class_head.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace vllm::engine {
namespace {

using Labels = std::vector<std::string>;
using Scale = ClassHead::Scale;

base::Result<ClassHead> Of(const std::string& config, int64_t classes) {
  // Each test has its own: they run side by side.
  const std::string test = testing::UnitTest::GetInstance()->current_test_info()->name();
  const auto folder = std::filesystem::path(testing::TempDir()) / ("class_head_" + test);
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "config.json") << config;
  return LoadClassHead(folder, classes);
}

TEST(ClassHead, HasTheLabelsAndTheScaleOfTheConfiguration) {
  const auto named = Of(R"({"id2label":{"0":"no","1":7,"2":"yes","9":"x"}})", 3);
  ASSERT_TRUE(named.ok());
  EXPECT_EQ(named->labels, (Labels{"no", "LABEL_1", "yes"}));
  EXPECT_EQ(named->scale, Scale::kSoftmax);
  EXPECT_EQ(Of(R"({"problem_type":"single_label_classification"})", 2)->scale, Scale::kSoftmax);
  EXPECT_EQ(Of(R"({"problem_type":"multi_label_classification"})", 2)->scale, Scale::kSigmoid);
  EXPECT_EQ(Of(R"({"problem_type":"regression"})", 1)->scale, Scale::kNone);
  EXPECT_EQ(Of(R"({"problem_type":null,"id2label":null})", 1)->scale, Scale::kSigmoid);
}

TEST(ClassHead, IsTransformersWhereNothingIsSaid) {
  const auto head = LoadClassHead("/no/such/folder", 2);
  ASSERT_TRUE(head.ok());
  EXPECT_EQ(head->labels, (Labels{"LABEL_0", "LABEL_1"}));
  EXPECT_TRUE(LoadClassHead("/no/such/folder", 0)->labels.empty());
}

TEST(ClassHead, RefusesAProblemThatIsNotKnown) {
  EXPECT_NE(Of(R"({"problem_type":"ranking"})", 2).error().message.find("'ranking'"),
            std::string::npos);
  EXPECT_FALSE(Of(R"({"problem_type":3})", 2).ok());
  EXPECT_FALSE(Of("[]", 2).ok());
}

}  // namespace
}  // namespace vllm::engine
