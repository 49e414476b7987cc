// StarCoder 2: layer norms with biases, biases on every linear, and an MLP without a gate.
#include "base/strings.h"
#include "vllm/models/parts.h"

namespace vllm::models {
namespace {

using vt::ir::Builder;
using vt::ir::ValueId;

ValueId BuildStarCoder2(Builder& b, const BuildContext& context) {
  const weights::Config& c = context.config;
  const vt::ir::RopeAttrs rope = RopeOf(b, context, c.rope);
  const bool bias = c.Option("use_bias") != 0;
  const AttentionParts parts = {.rope = &rope, .qkv_bias = bias, .out_bias = bias};
  const auto norm = [&](ValueId v, const std::string& name) {
    return b.LayerNorm(v, name + ".weight", name + ".bias", c.rms_norm_eps);
  };
  ValueId x = b.Embed("model.embed_tokens.weight", c.vocab_size, c.hidden_size);
  for (int64_t layer = 0; layer < c.num_hidden_layers; ++layer) {
    const std::string p = fmt::format("model.layers.{}.", layer);
    x = b.Add(x,
              SelfAttention(b, c, layer, p + "self_attn.", norm(x, p + "input_layernorm"), parts));
    const ValueId m = norm(x, p + "post_attention_layernorm");
    const ValueId h =
        b.Act(b.Linear(m, p + "mlp.c_fc", c.intermediate_size, bias), ActivationOf(b, c));
    x = b.Add(x, b.Linear(h, p + "mlp.c_proj", c.hidden_size, bias));
  }
  return LmHead(b, c, norm(b.OutputOnly(x), "model.norm"));
}

weights::Family StarCoder2() {
  return {.name = "starcoder2",
          .architecture = "Starcoder2ForCausalLM",
          .model_type = "starcoder2",
          .gguf = "starcoder2",
          .kv_heads = 2,
          .max_position_embeddings = 4096,
          .activation = "gelu_pytorch_tanh",
          .eps_key = "norm_epsilon",
          .eps = 1e-5,
          .tied = true,
          .windows = weights::Windows::kAll,
          .options = {{.json = "use_bias", .fallback = 1}},
          .names = {{"ffn_up", "mlp.c_fc"}, {"ffn_down", "mlp.c_proj"}}};
}

}  // namespace

VLLM_MODEL_FAMILY(starcoder2, BuildStarCoder2, StarCoder2())

}  // namespace vllm::models
