// OLMo 2 and OLMo 3: a norm behind each block in place of one before it, and queries and keys that
// are normed as a whole. OLMo 3 attends through windows on most layers, which rotate unscaled.
#include "base/strings.h"
#include "vllm/models/parts.h"
#include "vllm/weights/gguf_reader.h"

namespace vllm::models {
namespace {

using vt::ir::Builder;
using vt::ir::ValueId;

ValueId BuildOlmo(Builder& b, const BuildContext& context) {
  const weights::Config& c = context.config;
  const vt::ir::RopeAttrs global = RopeOf(b, context, c.rope);
  const vt::ir::RopeAttrs local = RopeOf(b, context, c.rope_local);
  const auto norm = [&](ValueId v, const std::string& name) {
    return b.RmsNorm(v, name + ".weight", c.rms_norm_eps);
  };
  ValueId x = b.Embed("model.embed_tokens.weight", c.vocab_size, c.hidden_size);
  for (int64_t layer = 0; layer < c.num_hidden_layers; ++layer) {
    const std::string p = fmt::format("model.layers.{}.", layer);
    const AttentionParts parts = {.rope = c.WindowOf(layer) > 0 ? &local : &global,
                                  .qkv_bias = c.attention_bias,
                                  .out_bias = c.attention_bias,
                                  .norm = AttentionParts::Norm::kWhole};
    const ValueId a = SelfAttention(b, c, layer, p + "self_attn.", x, parts);
    x = b.Add(x, norm(a, p + "post_attention_layernorm"));
    const ValueId m = Mlp(b, c, layer, p + "mlp.", x);
    x = b.Add(x, norm(m, p + "post_feedforward_layernorm"));
  }
  return LmHead(b, c, norm(b.OutputOnly(x), "model.norm"));
}

weights::Family Olmo2() {
  return {.name = "olmo2",
          .architecture = "Olmo2ForCausalLM",
          .model_type = "olmo2",
          .eps = 1e-5,
          .takes_attention_bias = true,
          .names = {{"post_attention_norm", "post_attention_layernorm"},
                    {"post_ffw_norm", "post_feedforward_layernorm"}}};
}

// GGUF has one architecture for both: without a window it is OLMo 2.
weights::Family Olmo3() {
  weights::Family f = Olmo2();
  f.name = f.model_type = "olmo3";
  f.architecture = "Olmo3ForCausalLM";
  f.gguf = "olmo2";
  f.rope_theta = f.local_rope_theta = 500000;
  f.own_local_rope = true;
  f.windows = weights::Windows::kPeriod;
  f.window_period = 4;
  f.sliding_window = 4096;
  f.read_gguf = [](weights::GgufReader& r, weights::Config& c) {
    c.rope_local.theta = r.Number("rope.freq_base_swa", c.rope.theta);
  };
  return f;
}

}  // namespace

VLLM_MODEL_FAMILY(olmo, BuildOlmo, Olmo2(), Olmo3())

}  // namespace vllm::models
