// Faults that were reported of other engines, as tests on a loaded model.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/os/file.h"
#include "model_forward.h"
#include "model_golden.h"

namespace vllm::testing {
namespace {

constexpr double kTolerance = 2e-4;
const std::vector<int64_t> kWhole = {64};

// A copy of a golden's checkpoint whose config.json has `from` replaced by `to`; removed at the
// end.
class EditedCheckpoint {
 public:
  EditedCheckpoint(const ModelGolden& golden, const std::string& from, const std::string& to) {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ =
        std::filesystem::path(::testing::TempDir()) / ("vllm_case_" + std::string(test->name()));
    std::filesystem::remove_all(folder_);
    std::filesystem::copy(golden.path, folder_);
    auto config = base::os::ReadFile((folder_ / "config.json").string());
    const size_t at = config.ok() ? config->find(from) : std::string::npos;
    if (at == std::string::npos) {
      ADD_FAILURE() << golden.name << "/config.json has no " << from;
      return;
    }
    config->replace(at, from.size(), to);
    EXPECT_TRUE(base::os::WriteFile((folder_ / "config.json").string(), *config).ok());
  }
  ~EditedCheckpoint() { std::filesystem::remove_all(folder_); }
  EditedCheckpoint(const EditedCheckpoint&) = delete;
  EditedCheckpoint& operator=(const EditedCheckpoint&) = delete;

  std::string path() const { return folder_.string(); }

 private:
  std::filesystem::path folder_;
};

void ExpectLogits(const std::string& path, const ModelGolden& golden) {
  const auto llm = LoadFloat32(path, 64);
  ASSERT_NE(llm, nullptr);
  for (size_t p = 0; p < golden.prompts.size(); ++p) {
    EXPECT_LE(
        RelativeError(Forward(*llm, golden.prompts[p], kWhole), golden.logits[p], golden.vocab),
        kTolerance);
  }
}

TEST(TiedEmbeddings, HeadAbsentAndNothingSaidReadsTheEmbedding) {
  const ModelGolden golden = LoadGolden("llama_tied");
  const EditedCheckpoint edited(golden, "\"tie_word_embeddings\": true,", "");
  ExpectLogits(edited.path(), golden);
}

// transformers 5 ties nothing when both tensors are there and differ.
TEST(TiedEmbeddings, HeadThatDiffersIsUsedEvenWhereTheConfigurationSaysTied) {
  const ModelGolden golden = LoadGolden("llama_linear");
  const EditedCheckpoint edited(golden, "\"tie_word_embeddings\": false",
                                "\"tie_word_embeddings\": true");
  ExpectLogits(edited.path(), golden);
}

TEST(TiedEmbeddings, UntiedWithoutAHeadIsRefusedByName) {
  const ModelGolden golden = LoadGolden("llama_tied");
  const EditedCheckpoint edited(golden, "\"tie_word_embeddings\": true",
                                "\"tie_word_embeddings\": false");
  const auto llm = engine::Llm::Load(Float32Options(edited.path(), 64));
  ASSERT_FALSE(llm.ok());
  EXPECT_NE(llm.error().message.find("lm_head.weight"), std::string::npos) << llm.error().message;
}

class WindowTest : public ::testing::Test {
 protected:
  static constexpr int64_t kWindow =
      8;  // of mistral_one_layer: the query's token and the 7 before it
  static constexpr size_t kLength = 40;

  // The last row, the prompt computed in steps of `cuts` tokens; `back` tokens before the last one
  // changed.
  std::vector<float> LastRow(engine::Llm& llm, const std::vector<int64_t>& cuts,
                             int64_t back = -1) {
    std::vector<int32_t> ids = golden_.prompts[2];
    EXPECT_EQ(ids.size(), kLength);
    if (back >= 0) ids[kLength - 1 - static_cast<size_t>(back)] ^= 1;
    const std::vector<float> rows = Forward(llm, ids, cuts);
    if (rows.size() != kLength * static_cast<size_t>(golden_.vocab)) return {};
    return {rows.end() - golden_.vocab, rows.end()};
  }

  void ExpectWindow(engine::Llm& llm, const std::vector<int64_t>& cuts) {
    const std::vector<float> base = LastRow(llm, cuts);
    for (const int64_t back : {kWindow - 2, kWindow - 1}) {
      EXPECT_GT(RelativeError(LastRow(llm, cuts, back), base, golden_.vocab), 1e-3)
          << "the token " << back << " back is inside the window";
    }
    for (const int64_t back : {kWindow, kWindow + 1}) {
      EXPECT_EQ(LastRow(llm, cuts, back), base)
          << "the token " << back << " back is outside the window";
    }
  }

  const ModelGolden golden_ = LoadGolden("mistral_one_layer");
};

TEST_F(WindowTest, CountsTheQuerysOwnTokenInOnePrefill) {
  const auto llm = LoadFloat32(golden_.path, 64);
  ASSERT_NE(llm, nullptr);
  ExpectWindow(*llm, kWhole);
}

TEST_F(WindowTest, IsTheSameWhereverAPrefillIsCut) {
  const auto llm = LoadFloat32(golden_.path, 64);
  ASSERT_NE(llm, nullptr);
  for (int64_t cut = 1; cut < static_cast<int64_t>(kLength); ++cut) {
    SCOPED_TRACE(cut);
    ExpectWindow(*llm, {cut, 64});
  }
}

TEST_F(WindowTest, IsTheSameInDecode) {
  const auto llm = LoadFloat32(golden_.path, 64);
  ASSERT_NE(llm, nullptr);
  ExpectWindow(*llm, {1});
}

}  // namespace
}  // namespace vllm::testing
