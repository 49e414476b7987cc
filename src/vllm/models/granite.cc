// Granite 3, dense and with experts: Llama's layers with four numbers that scale the embedding, the
// scores of attention, what each block adds, and the logits.
#include "base/strings.h"
#include "vllm/models/parts.h"

namespace vllm::models {
namespace {

using vt::ir::Builder;
using vt::ir::ValueId;

ValueId BuildGranite(Builder& b, const BuildContext& context) {
  const weights::Config& c = context.config;
  const vt::ir::RopeAttrs rope = RopeOf(b, context, c.rope);
  const auto number = [&](const char* name) { return static_cast<float>(c.Option(name)); };
  const AttentionParts parts = {.rope = &rope,
                                .qkv_bias = c.attention_bias,
                                .out_bias = c.attention_bias,
                                .scale = number("attention_multiplier")};
  const float residual = number("residual_multiplier");
  ValueId x = b.Scale(b.Embed("model.embed_tokens.weight", c.vocab_size, c.hidden_size),
                      number("embedding_multiplier"));
  for (int64_t layer = 0; layer < c.num_hidden_layers; ++layer) {
    const std::string p = fmt::format("model.layers.{}.", layer);
    const ValueId h = b.RmsNorm(x, p + "input_layernorm.weight", c.rms_norm_eps);
    x = b.Add(x, b.Scale(SelfAttention(b, c, layer, p + "self_attn.", h, parts), residual));
    const ValueId m = b.RmsNorm(x, p + "post_attention_layernorm.weight", c.rms_norm_eps);
    x = b.Add(x, b.Scale(Mlp(b, c, layer, p + "mlp.", m), residual));
  }
  const ValueId last = b.RmsNorm(b.OutputOnly(x), "model.norm.weight", c.rms_norm_eps);
  return b.Scale(LmHead(b, c, last), 1 / number("logits_scaling"));
}

weights::Family Granite() {
  return {.name = "granite",
          .architecture = "GraniteForCausalLM",
          .model_type = "granite",
          .gguf = "granite",
          .takes_attention_bias = true,
          .takes_mlp_bias = true,
          .gguf_interleaved = true,
          .options = {{"embedding_multiplier", "embedding_scale", 1, 1e-6},
                      {"attention_multiplier", "attention.scale", 1, 1e-6},
                      {"residual_multiplier", "residual_scale", 1, 1e-6},
                      {"logits_scaling", "logit_scale", 1, 1e-6}}};
}

weights::Family GraniteMoe() {
  weights::Family f = Granite();
  f.name = f.model_type = "granitemoe";
  f.architecture = "GraniteMoeForCausalLM";
  f.gguf = "granitemoe";
  f.takes_mlp_bias = false;
  f.experts = weights::ExpertOptions{
      .defaults = {.count = 8, .per_token = 2}, .every_layer = true, .size_is_intermediate = true};
  f.renames = {{".block_sparse_moe.router.layer.", ".mlp.gate."},
               {".block_sparse_moe.input_linear.", ".mlp.experts.gate_up_proj."},
               {".block_sparse_moe.output_linear.", ".mlp.experts.down_proj."}};
  return f;
}

}  // namespace

VLLM_MODEL_FAMILY(granite, BuildGranite, Granite(), GraniteMoe())

}  // namespace vllm::models
