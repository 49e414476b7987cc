#include "vllm/weights/mix.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>

#include "base/strings.h"

namespace vllm::weights {
namespace {

std::ifstream Golden(const std::string& name) {
  return std::ifstream(VLLM_SOURCE_DIR "/tests/goldens/weights/" + name);
}

// Compares every line of a golden with Mix::Choose; the number of tensors compared.
int Compare(const std::string& golden) {
  std::ifstream file = Golden(golden);
  EXPECT_TRUE(file) << golden;
  MixModel model;
  Mix mix = *Mix::FromName("F32");
  int tensors = 0;
  std::string line;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string first;
    words >> first;
    if (first == "model") {
      words >> model.layers >> model.heads_per_kv_head >> model.tied_embeddings >> model.experts;
    } else if (first == "mix") {
      std::string name;
      words >> name;
      const base::Result<Mix> found = Mix::FromName(name);
      EXPECT_TRUE(found) << name;
      if (found) mix = *found;
    } else {
      int64_t rows = 0, columns = 0;
      std::string type;
      words >> rows >> columns >> type;
      const std::optional<vt::ir::DType> expected = vt::ir::FromName(type);
      EXPECT_TRUE(expected) << type;
      if (!expected) continue;
      EXPECT_EQ(vt::ir::Name(mix.Choose(model, first, {rows, columns})), vt::ir::Name(*expected))
          << mix.name() << " " << line << " of " << model.layers << " layers";
      ++tensors;
    }
  }
  return tensors;
}

// What llama-quantize made of small models (tools/make_mix_goldens.py).
TEST(Mix, EveryTensorGetsTheFormatThatLlamaQuantizeGivesIt) {
  EXPECT_EQ(Compare("mixes.txt"), 5382);
}
TEST(Mix, ExpertsAndRecurrentLayersGetTheFormatsThatLlamaQuantizeGivesThem) {
  EXPECT_EQ(Compare("mixes_experts.txt"), 3315);
}

// The published Gemma 3 270M Q4_K_M: widths of 640 fall back from superblocks.
TEST(Mix, GivesAPublishedModelsFormats) {
  std::ifstream file = Golden("gemma-3-270m-q4_k_m.txt");
  ASSERT_TRUE(file);
  const base::Result<Mix> mix = Mix::FromName("q4_k_m");
  ASSERT_TRUE(mix);
  const MixModel model{.layers = 18, .heads_per_kv_head = 4, .tied_embeddings = true};
  std::string name, type;
  int64_t rows = 0, columns = 0;
  int tensors = 0;
  while (file >> name >> rows >> columns >> type) {
    EXPECT_EQ(vt::ir::Name(mix->Choose(model, name, {rows, columns})), type) << name;
    ++tensors;
  }
  EXPECT_EQ(tensors, 127);
}

// Rules that count attentions count those with a value matrix: here every fourth of 32 layers.
TEST(Mix, LayersWithoutAValueMatrixAreNotCounted) {
  const Mix mix = *Mix::FromName("Q4_K_M");
  MixModel model{.layers = 32};
  for (int64_t layer = 3; layer < 32; layer += 4) model.value_layers.push_back(layer);
  // Of eight: the first, the last, and every third between (3 and 6).
  std::string more;
  for (const int64_t layer : model.value_layers) {
    const auto type = mix.Choose(model, fmt::format("blk.{}.attn_v.weight", layer), {256, 2048});
    more += type == vt::ir::DType::kQ6_K ? '+' : '-';
  }
  EXPECT_EQ(more, "+--+--++");
}

TEST(Mix, EightExpertsAffordABetterAttention) {
  const Mix mix = *Mix::FromName("Q4_K_M");
  const MixModel model{
      .layers = 32, .heads_per_kv_head = 4, .tied_embeddings = false, .experts = 8};
  EXPECT_EQ(mix.Choose(model, "blk.9.attn_v.weight", {1024, 4096}), vt::ir::DType::kQ8_0);
  EXPECT_EQ(mix.Choose(model, "blk.9.attn_k.weight", {1024, 4096}), vt::ir::DType::kQ8_0);
  EXPECT_EQ(mix.Choose(model, "blk.9.attn_output.weight", {4096, 4096}), vt::ir::DType::kQ5_K);
  EXPECT_EQ(mix.Choose(model, "blk.9.ffn_gate_inp.weight", {8, 4096}), vt::ir::DType::kF32);
  EXPECT_EQ(mix.Choose(model, "blk.9.ffn_up_exps.weight", {8, 14336, 4096}), vt::ir::DType::kQ4_K);
}

TEST(Mix, VectorsAndNormsStayF32) {
  const Mix mix = *Mix::FromName("Q4_0");
  EXPECT_EQ(mix.Choose({}, "blk.0.attn_norm.weight", {64}), vt::ir::DType::kF32);
  EXPECT_EQ(mix.Choose({}, "blk.0.attn_q.bias", {64}), vt::ir::DType::kF32);
}

TEST(Mix, AnUnknownNameListsTheKnownOnes) {
  const base::Result<Mix> mix = Mix::FromName("Q9_K");
  ASSERT_FALSE(mix);
  EXPECT_NE(mix.error().message.find("Q4_K_M"), std::string::npos) << mix.error().message;
  for (const std::string_view name : Mix::Names()) EXPECT_TRUE(Mix::FromName(name)) << name;
}

}  // namespace
}  // namespace vllm::weights
