// GLM-4 (0414) and GLM-4.5: half of a head is rotated. GLM-4 has a norm before and behind each
// block and rotates neighbours; GLM-4.5 has experts, chosen by sigmoid and a bias, behind its first
// layers.
#include "base/strings.h"
#include "vllm/models/parts.h"
#include "vllm/weights/virtual_tensors.h"

namespace vllm::models {
namespace {

using vt::ir::Builder;
using vt::ir::ValueId;

ValueId BuildGlm4(Builder& b, const BuildContext& context) {
  const weights::Config& c = context.config;
  const vt::ir::RopeAttrs rope = RopeOf(b, context, c.rope);
  const bool moe = c.family == "glm4_moe";
  // GGUF says it by the tensors alone.
  const bool head_norm = moe && (c.Option("use_qk_norm") != 0 ||
                                 (c.from_gguf && b.Has("model.layers.0.self_attn.q_norm.weight")));
  const AttentionParts parts = {
      .rope = &rope,
      .qkv_bias = c.attention_bias,
      .norm = head_norm ? AttentionParts::Norm::kHeads : AttentionParts::Norm::kNone};
  const auto norm = [&](ValueId v, const std::string& name) {
    return b.RmsNorm(v, name + ".weight", c.rms_norm_eps);
  };
  ValueId x = b.Embed("model.embed_tokens.weight", c.vocab_size, c.hidden_size);
  for (int64_t layer = 0; layer < c.num_hidden_layers; ++layer) {
    const std::string p = fmt::format("model.layers.{}.", layer);
    const ValueId h = norm(x, p + "input_layernorm");
    const ValueId a = SelfAttention(b, c, layer, p + "self_attn.", h, parts);
    x = b.Add(x, moe ? a : norm(a, p + "post_self_attn_layernorm"));
    const ValueId m = Mlp(b, c, layer, p + "mlp.", norm(x, p + "post_attention_layernorm"));
    x = b.Add(x, moe ? m : norm(m, p + "post_mlp_layernorm"));
  }
  return LmHead(b, c, norm(b.OutputOnly(x), "model.norm"));
}

base::Status SplitGateUp(const weights::Config& c, int64_t, weights::LayerTensors& t) {
  return t.Split(
      "mlp.gate_up_proj.weight", 1,
      {{"mlp.gate_proj.weight", c.intermediate_size}, {"mlp.up_proj.weight", c.intermediate_size}},
      {c.hidden_size});
}

weights::Family Glm4() {
  return {.name = "glm4",
          .architecture = "Glm4ForCausalLM",
          .model_type = "glm4",
          .gguf = "glm4",
          .kv_heads = 2,
          .head_dim = 128,
          .max_position_embeddings = 131072,
          .eps = 1.5625e-7,
          .takes_attention_bias = true,
          .attention_bias = true,
          .partial_rotary_factor = 0.5,
          .interleaved = true,
          .names = {{"post_attention_norm", "post_self_attn_layernorm"},
                    {"post_ffw_norm", "post_mlp_layernorm"},
                    {"ffn_up", "mlp.gate_up_proj"}},
          .make_tensors = SplitGateUp};
}

weights::Family Glm4Moe() {
  return {.name = "glm4_moe",
          .architecture = "Glm4MoeForCausalLM",
          .model_type = "glm4_moe",
          .gguf = "glm4moe",
          .kv_heads = 8,
          .max_position_embeddings = 131072,
          .eps = 1e-5,
          .takes_attention_bias = true,
          .partial_rotary_factor = 0.5,
          .experts = weights::ExpertOptions{.defaults = {.count = 128,
                                                         .per_token = 8,
                                                         .intermediate_size = 1408,
                                                         .shared_intermediate_size = 1408,
                                                         .shared_gate = false,
                                                         .sigmoid = true,
                                                         .bias = true},
                                            .deepseek = true},
          .options = {{"use_qk_norm", "", 0}},
          .names = {{"post_attention_norm", "post_attention_layernorm"},
                    {"exp_probs_b.bias", "mlp.gate.e_score_correction_bias"}},
          .renames = {{".mlp.shared_experts.", ".mlp.shared_expert."}}};
}

}  // namespace

VLLM_MODEL_FAMILY(glm4, BuildGlm4, Glm4(), Glm4Moe())

}  // namespace vllm::models
