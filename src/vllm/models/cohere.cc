// Cohere 2 (Command R7B, Command A): attention and MLP read the same norm, which has no bias and
// takes the mean off; three of four layers slide and rotate neighbours, the others see everything
// and do not rotate.
#include "base/strings.h"
#include "vllm/models/parts.h"

namespace vllm::models {
namespace {

using vt::ir::Builder;
using vt::ir::ValueId;

ValueId BuildCohere2(Builder& b, const BuildContext& context) {
  const weights::Config& c = context.config;
  const vt::ir::RopeAttrs rope = RopeOf(b, context, c.rope);
  ValueId x = b.Embed("model.embed_tokens.weight", c.vocab_size, c.hidden_size);
  for (int64_t layer = 0; layer < c.num_hidden_layers; ++layer) {
    const std::string p = fmt::format("model.layers.{}.", layer);
    const AttentionParts parts = {.rope = c.WindowOf(layer) > 0 ? &rope : nullptr,
                                  .qkv_bias = c.attention_bias,
                                  .out_bias = c.attention_bias};
    const ValueId h = b.LayerNorm(x, p + "input_layernorm.weight", "", c.rms_norm_eps);
    x = b.Add(b.Add(x, SelfAttention(b, c, layer, p + "self_attn.", h, parts)),
              Mlp(b, c, layer, p + "mlp.", h));
  }
  const ValueId last = b.LayerNorm(b.OutputOnly(x), "model.norm.weight", "", c.rms_norm_eps);
  return b.Scale(LmHead(b, c, last), static_cast<float>(c.Option("logit_scale")));
}

weights::Family Cohere2() {
  return {.name = "cohere2",
          .architecture = "Cohere2ForCausalLM",
          .model_type = "cohere2",
          .gguf = "cohere2",
          .max_position_embeddings = 8192,
          .eps_key = "layer_norm_eps",
          .eps = 1e-5,
          .tied = true,
          .takes_attention_bias = true,
          .interleaved = true,
          .windows = weights::Windows::kPeriod,
          .window_period = 4,
          .sliding_window = 4096,
          .options = {{"logit_scale", "logit_scale", 0.0625, 1e-6}},
          .known = {"rotary_pct"}};
}

}  // namespace

VLLM_MODEL_FAMILY(cohere2, BuildCohere2, Cohere2())

}  // namespace vllm::models
