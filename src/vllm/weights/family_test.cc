// What families' files say of themselves, together and one by one.
#include "vllm/weights/family.h"

#include <gtest/gtest.h>

#include <set>

#include "base/json.h"
#include "vllm/weights/config.h"
#include "vllm/weights/virtual_tensors.h"

namespace vllm::weights {
namespace {

base::Result<Config> Read(const std::string& architecture, const std::string& more = "") {
  const std::string text =
      R"({"vocab_size":32,"hidden_size":64,"intermediate_size":128,"num_hidden_layers":4,)"
      R"("num_attention_heads":4,"num_key_value_heads":2,"max_position_embeddings":512,)"
      R"("architectures":[")" +
      architecture + "\"]" + (more.empty() ? "" : "," + more) + "}";
  return ConfigFromJson(*base::ParseJson(text), nullptr);
}

void ExpectRefused(const std::string& architecture, const std::string& more, const char* part) {
  const base::Result<Config> c = Read(architecture, more);
  ASSERT_FALSE(c) << architecture << " takes " << more;
  EXPECT_NE(c.error().message.find(part), std::string::npos) << c.error().message;
}

TEST(Families, NoTwoAnswerToOneName) {
  std::set<std::string_view> architectures;
  std::set<std::pair<std::string_view, bool>> gguf;
  for (const Family* f : Families()) {
    EXPECT_NE(f->build, nullptr) << f->name;
    for (const std::string_view name : {f->architecture, f->wider_architecture}) {
      EXPECT_TRUE(name.empty() || architectures.insert(name).second) << name;
    }
    EXPECT_FALSE(f->model_type.empty()) << f->name;
    if (!f->gguf.empty()) {
      EXPECT_TRUE(gguf.emplace(f->gguf, f->experts.has_value()).second) << f->name;
    }
  }
  EXPECT_GE(architectures.size(), 20u);
}

// An option of one family is no option of another.
TEST(Families, UnknownMathematicsIsRefusedByName) {
  for (const Family* f : Families()) {
    ExpectRefused(std::string(f->architecture), R"("qk_layernorm_kind":"cosine")",
                  "qk_layernorm_kind");
    ExpectRefused(std::string(f->architecture), R"("rope_scaling":{"rope_type":"spiral"})",
                  "spiral");
  }
  ExpectRefused("LlamaForCausalLM", R"("embedding_multiplier":3)", "embedding_multiplier");
  ExpectRefused("GraniteForCausalLM", R"("attn_logit_softcapping":3)", "attn_logit_softcapping");
  ExpectRefused("Olmo2ForCausalLM", R"("sliding_window":8)", "sliding_window");
  ExpectRefused("Phi3ForCausalLM", R"("attention_bias":true)", "attention_bias");
}

TEST(Families, OptionsOutOfRangeAreRefusedByName) {
  ExpectRefused("GraniteForCausalLM", R"("logits_scaling":0)", "logits_scaling is 0");
  ExpectRefused("GraniteForCausalLM", R"("logits_scaling":"x")", "logits_scaling");
  ExpectRefused("SmolLM3ForCausalLM", R"("no_rope_layer_interval":0)", "no_rope_layer_interval");
  ExpectRefused("SmolLM3ForCausalLM", R"("no_rope_layers":[1,0])", "no_rope_layers");
  ExpectRefused("SmolLM3ForCausalLM", R"("no_rope_layers":[1,0,2,1])", "no_rope_layers");
  ExpectRefused("Glm4MoeForCausalLM", R"("n_group":3)", "n_group is 3");
  ExpectRefused("Glm4MoeForCausalLM", R"("n_group":16,"topk_group":17)", "topk_group is 17");
  ExpectRefused("Glm4MoeForCausalLM", R"("n_group":64,"topk_group":3)", "topk_group is 3");
  ExpectRefused("Glm4MoeForCausalLM", R"("first_k_dense_replace":5)", "first_k_dense_replace is 5");
  ExpectRefused("Glm4MoeForCausalLM", R"("scoring_func":"softmax")", "scoring_func 'softmax'");
  ExpectRefused("Glm4MoeForCausalLM", R"("routed_scaling_factor":-1)", "routed_scaling_factor");
  ExpectRefused("Glm4MoeForCausalLM", R"("num_nextn_predict_layers":-1)",
                "num_nextn_predict_layers");
}

TEST(Families, LongRopeIsReadInBothSpellingsAndNeedsBothLists) {
  const std::string lists = R"("short_factor":[1,1.5],"long_factor":[2,4]})";
  for (const char* type : {"su", "longrope"}) {
    const base::Result<Config> c = Read(
        "Phi3ForCausalLM", R"("original_max_position_embeddings":128,"rope_scaling":{"type":")" +
                               std::string(type) + "\"," + lists);
    ASSERT_TRUE(c) << c.error().message;
    EXPECT_EQ(c->rope.type, "longrope");
    EXPECT_EQ(c->rope.long_factor, (std::vector<double>{2, 4}));
    EXPECT_EQ(c->rope.factor, 4) << "512 tokens of 128";
    EXPECT_EQ(c->rope.original_max_position_embeddings, 128);
  }
  for (const char* bad : {R"("short_factor":[1]})", R"("short_factor":[1],"long_factor":[1,2]})",
                          R"("short_factor":[0,1],"long_factor":[1,2]})",
                          R"("short_factor":"x","long_factor":[1,2]})"}) {
    ExpectRefused("Phi3ForCausalLM", std::string(R"("rope_scaling":{"type":"longrope",)") + bad,
                  "short_factor");
  }
}

TEST(Families, DeepSeeksWordsDescribeExperts) {
  const base::Result<Config> c =
      Read("Glm4MoeForCausalLM",
           R"("n_routed_experts":16,"num_experts_per_tok":4,"moe_intermediate_size":24,)"
           R"("n_shared_experts":2,"first_k_dense_replace":3,"n_group":4,"topk_group":2,)"
           R"("routed_scaling_factor":2.5,"norm_topk_prob":true,"scoring_func":"sigmoid")");
  ASSERT_TRUE(c) << c.error().message;
  EXPECT_EQ(c->experts.count, 16);
  EXPECT_EQ(c->experts.shared_intermediate_size, 48);
  EXPECT_FALSE(c->experts.shared_gate);
  EXPECT_TRUE(c->experts.sigmoid);
  EXPECT_EQ(c->experts.scale, 2.5);
  EXPECT_EQ(c->experts.groups, 4);
  EXPECT_EQ(c->sparse_layers, (std::vector<bool>{false, false, false, true}));
}

TEST(Families, LayersThatPredictFurtherTokensAreSkipped) {
  base::Result<Config> c = Read("Glm4MoeForCausalLM", R"("num_nextn_predict_layers":1)");
  ASSERT_TRUE(c) << c.error().message;
  std::map<std::string, TensorInfo> tensors = {{"model.layers.3.input_layernorm.weight", {}},
                                               {"model.layers.4.input_layernorm.weight", {}},
                                               {"model.layers.40.input_layernorm.weight", {}}};
  ASSERT_TRUE(MakeVirtualTensors(*c, tensors));
  EXPECT_TRUE(tensors.contains("model.layers.3.input_layernorm.weight"));
  EXPECT_FALSE(tensors.contains("model.layers.4.input_layernorm.weight"));
  EXPECT_TRUE(tensors.contains("model.layers.40.input_layernorm.weight"));
}

// Embedding, norm and head; a layer: four projections with biases, three of the MLP, two norms.
TEST(Families, ExpectedTensorsAreWhatTheGraphAsksFor) {
  const base::Result<Config> c = Read("LlamaForCausalLM", R"("attention_bias":true)");
  ASSERT_TRUE(c) << c.error().message;
  const auto expected = ExpectedTensors(*c);
  ASSERT_TRUE(expected) << expected.error().message;
  EXPECT_EQ(expected->size(), 3u + 4 * (4 * 2 + 3 + 2));
  EXPECT_EQ(expected->at("model.layers.3.self_attn.k_proj.weight"), (std::vector<int64_t>{32, 64}));
  EXPECT_EQ(expected->at("model.layers.0.mlp.down_proj.weight"), (std::vector<int64_t>{64, 128}));
  EXPECT_TRUE(expected->contains("lm_head.weight"));
  const auto tied = ExpectedTensors(*Read("LlamaForCausalLM", R"("tie_word_embeddings":true)"));
  ASSERT_TRUE(tied);
  EXPECT_FALSE(tied->contains("lm_head.weight"));
}

}  // namespace
}  // namespace vllm::weights
