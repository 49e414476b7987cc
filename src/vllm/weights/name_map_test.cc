#include "vllm/weights/name_map.h"

#include <gtest/gtest.h>

namespace vllm::weights {
namespace {

TEST(NameMap, GgufAndHuggingFaceNamesTranslateBothWays) {
  struct Case {
    const char *family, *gguf, *hf;
  };
  for (const Case& c :
       {Case{"llama", "token_embd.weight", "model.embed_tokens.weight"},
        {"llama", "output.weight", "lm_head.weight"},
        {"llama", "output_norm.weight", "model.norm.weight"},
        {"llama", "blk.31.attn_q.weight", "model.layers.31.self_attn.q_proj.weight"},
        {"qwen2", "blk.0.attn_k.bias", "model.layers.0.self_attn.k_proj.bias"},
        {"qwen3", "blk.2.attn_q_norm.weight", "model.layers.2.self_attn.q_norm.weight"},
        {"llama", "blk.2.ffn_norm.weight", "model.layers.2.post_attention_layernorm.weight"},
        {"gemma2", "blk.2.ffn_norm.weight", "model.layers.2.pre_feedforward_layernorm.weight"},
        {"gemma3", "blk.2.post_attention_norm.weight",
         "model.layers.2.post_attention_layernorm.weight"},
        {"gemma3", "blk.2.post_ffw_norm.weight",
         "model.layers.2.post_feedforward_layernorm.weight"},
        {"gemma3", "blk.2.ffn_down.weight", "model.layers.2.mlp.down_proj.weight"},
        {"mixtral", "blk.2.ffn_gate_inp.weight", "model.layers.2.mlp.gate.weight"},
        {"qwen3_moe", "blk.2.ffn_up_exps.weight", "model.layers.2.mlp.experts.up_proj.weight"},
        {"qwen3_moe", "blk.2.ffn_norm.weight", "model.layers.2.post_attention_layernorm.weight"},
        {"qwen3_next", "blk.2.ssm_ba.weight", "model.layers.2.linear_attn.in_proj_ba.weight"},
        {"qwen3_5_moe", "blk.2.ffn_gate_inp_shexp.weight",
         "model.layers.2.mlp.shared_expert_gate.weight"},
        {"qwen3_5", "blk.2.post_attention_norm.weight",
         "model.layers.2.post_attention_layernorm.weight"},
        {"qwen3_5", "blk.2.attn_q.weight", "model.layers.2.self_attn.q_proj.weight"},
        {"qwen3_5", "blk.2.ssm_dt.bias", "model.layers.2.linear_attn.dt_bias"},
        {"qwen3_5", "blk.2.ssm_a", "model.layers.2.linear_attn.A"},
        {"qwen3_5", "blk.2.attn_gate.weight", "model.layers.2.linear_attn.in_proj_z.weight"}}) {
    EXPECT_EQ(HfFromGguf(c.family, c.gguf), c.hf);
    EXPECT_EQ(GgufFromHf(c.family, c.hf), c.gguf);
  }
}

TEST(NameMap, OldFilesHoldExpertsOneByOne) {
  EXPECT_EQ(HfFromGguf("mixtral", "blk.3.ffn_gate.7.weight"),
            "model.layers.3.mlp.experts.7.gate_proj.weight");
  EXPECT_EQ(HfFromGguf("mixtral", "blk.3.ffn_gate.x.weight"), std::nullopt);
  EXPECT_EQ(HfFromGguf("llama", "blk.3.ffn_gate.7.weight"), std::nullopt);
}

TEST(NameMap, AGatedAttentionsTwoProjectionsAreOneInGguf) {
  EXPECT_EQ(GgufFromHf("qwen3_5", "model.layers.2.self_attn.q_gate.weight"), "blk.2.attn_q.weight");
}

TEST(NameMap, UnknownNamesHaveNoTranslation) {
  for (const char* name :
       {"", "blk.0.attn_q", "blk..attn_q.weight", "blk.x.attn_q.weight", "blk.01.attn_q.weight",
        "blk.0.ssm_a.weight", "rope_freqs.weight", ".weight", "blk.0..weight"}) {
    EXPECT_EQ(HfFromGguf("llama", name), std::nullopt) << name;
  }
}

TEST(NameMap, MultimodalPrefixesGoAndVisionTensorsAreLeftOut) {
  EXPECT_EQ(CanonicalName("model.layers.0.input_layernorm.weight"),
            "model.layers.0.input_layernorm.weight");
  EXPECT_EQ(CanonicalName("model.language_model.layers.0.input_layernorm.weight"),
            "model.layers.0.input_layernorm.weight");
  EXPECT_EQ(CanonicalName("language_model.model.norm.weight"), "model.norm.weight");
  EXPECT_EQ(CanonicalName("layers.0.input_layernorm.weight"),
            "model.layers.0.input_layernorm.weight");
  EXPECT_EQ(CanonicalName("norm.weight"), "model.norm.weight");
  EXPECT_EQ(CanonicalName("language_model.lm_head.weight"), "lm_head.weight");
  EXPECT_EQ(CanonicalName("vision_tower.vision_model.encoder.layers.0.mlp.fc1.weight"),
            std::nullopt);
  EXPECT_EQ(CanonicalName("model.visual.blocks.0.attn.qkv.weight"), std::nullopt);
  EXPECT_EQ(CanonicalName("mtp.fc.weight"), std::nullopt);
  EXPECT_EQ(CanonicalName("model.multi_modal_projector.mm_input_projection_weight"), std::nullopt);
}

}  // namespace
}  // namespace vllm::weights
