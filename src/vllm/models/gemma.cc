// Gemma 2 and 3 (text): norms before and after each block (a sandwich around the residual),
// embeddings scaled by sqrt(width), windows on most layers. Gemma 2 caps its scores and logits;
// Gemma 3 norms each head's query and key and has its own rope base on windowed layers.
#include <cmath>

#include "base/strings.h"
#include "vllm/models/parts.h"

namespace vllm::models {
namespace {

using vt::ir::Builder;
using vt::ir::ValueId;

ValueId BuildGemma(Builder& b, const BuildContext& context) {
  const weights::Config& c = context.config;
  const bool gemma3 = c.family == "gemma3";
  const vt::ir::RopeAttrs global = RopeOf(b, context, c.rope);
  const vt::ir::RopeAttrs local = gemma3 ? RopeOf(b, context, c.rope_local) : global;
  const int64_t hd = c.head_dim;
  const auto norm = [&](ValueId v, const std::string& name) {
    return b.RmsNorm(v, name + ".weight", c.rms_norm_eps, c.norm_weight_offset);
  };

  ValueId x = b.Scale(b.Embed("model.embed_tokens.weight", c.vocab_size, c.hidden_size),
                      std::sqrt(static_cast<float>(c.hidden_size)));
  for (int64_t layer = 0; layer < c.num_hidden_layers; ++layer) {
    const std::string p = fmt::format("model.layers.{}.", layer);
    const int64_t window = c.WindowOf(layer);
    const vt::ir::RopeAttrs& rope = window > 0 ? local : global;
    const bool bias = c.attention_bias;

    const ValueId h = norm(x, p + "input_layernorm");
    ValueId q =
        b.Heads(b.Linear(h, p + "self_attn.q_proj", c.num_heads * hd, bias), c.num_heads, hd);
    ValueId k =
        b.Heads(b.Linear(h, p + "self_attn.k_proj", c.num_kv_heads * hd, bias), c.num_kv_heads, hd);
    const ValueId v =
        b.Heads(b.Linear(h, p + "self_attn.v_proj", c.num_kv_heads * hd, bias), c.num_kv_heads, hd);
    if (gemma3) {
      q = norm(q, p + "self_attn.q_norm");
      k = norm(k, p + "self_attn.k_norm");
    }
    const vt::ir::AttentionAttrs attention = {
        .heads = c.num_heads,
        .kv_heads = c.num_kv_heads,
        .head_dim = hd,
        .scale = 1 / std::sqrt(static_cast<float>(c.query_pre_attn_scalar)),
        .softcap = c.attn_logit_softcapping,
        .window = window};
    const ValueId a = b.Attention(b.Rope(q, rope), b.Rope(k, rope), v, attention, p + "self_attn");
    const ValueId o = b.Linear(a, p + "self_attn.o_proj", c.hidden_size, bias);
    x = b.Add(x, norm(o, p + "post_attention_layernorm"));
    const ValueId m = Mlp(b, c, layer, p + "mlp.", norm(x, p + "pre_feedforward_layernorm"));
    x = b.Add(x, norm(m, p + "post_feedforward_layernorm"));
  }
  const ValueId logits = LmHead(b, c, norm(b.OutputOnly(x), "model.norm"));
  return c.final_logit_softcapping > 0 ? b.SoftCap(logits, c.final_logit_softcapping) : logits;
}

}  // namespace

VLLM_MODEL_FAMILY(gemma, BuildGemma, "gemma2", "gemma3")

}  // namespace vllm::models
