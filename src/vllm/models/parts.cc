#include "vllm/models/parts.h"

#include <cmath>

#include "base/strings.h"

namespace vllm::models {

using vt::ir::Activation;
using vt::ir::ValueId;

vt::ir::RopeAttrs RopeOf(vt::ir::Builder& b, const BuildContext& context, const weights::Rope& rope,
                         int64_t head_dim) {
  const weights::Config& c = context.config;
  base::Result<vt::ir::RopeAttrs> attrs = MakeRope(rope, head_dim > 0 ? head_dim : c.head_dim,
                                                   context.max_model_len, c.rope_interleaved);
  if (attrs) return *attrs;
  b.Fail(attrs.error().message);
  return {};
}

ValueId SelfAttention(vt::ir::Builder& b, const weights::Config& c, int64_t layer,
                      const std::string& prefix, ValueId x, const AttentionParts& parts) {
  const int64_t hd = c.head_dim;
  const auto project = [&](const char* name, const char* norm, int64_t heads) {
    ValueId v = b.Linear(x, prefix + name, heads * hd, parts.qkv_bias);
    const std::string weight = prefix + norm + ".weight";
    const bool normed = *norm != 0;
    if (normed && parts.norm == AttentionParts::Norm::kWhole)
      v = b.RmsNorm(v, weight, c.rms_norm_eps, c.norm_weight_offset);
    v = b.Heads(v, heads, hd);
    if (normed && parts.norm == AttentionParts::Norm::kHeads)
      v = b.RmsNorm(v, weight, c.rms_norm_eps, c.norm_weight_offset);
    return normed && parts.rope != nullptr ? b.Rope(v, *parts.rope) : v;
  };
  const ValueId q = project("q_proj", "q_norm", c.num_heads);
  const ValueId k = project("k_proj", "k_norm", c.num_kv_heads);
  const ValueId v = project("v_proj", "", c.num_kv_heads);
  const vt::ir::AttentionAttrs attention = {
      .heads = c.num_heads,
      .kv_heads = c.num_kv_heads,
      .head_dim = hd,
      .scale = parts.scale > 0 ? parts.scale : 1 / std::sqrt(static_cast<float>(hd)),
      .softcap = c.attn_logit_softcapping,
      .window = c.WindowOf(layer),
      .sinks = parts.sinks};
  const ValueId a = b.Attention(q, k, v, attention, prefix.substr(0, prefix.size() - 1),
                                parts.sinks ? prefix + "sinks" : "");
  return b.Linear(a, prefix + "o_proj", c.hidden_size, parts.out_bias);
}

ValueId LmHead(vt::ir::Builder& b, const weights::Config& c, ValueId x) {
  b.MarkHidden(x);
  if (b.Has("lm_head.weight")) return b.Linear(x, "lm_head", c.vocab_size);
  if (c.tie_word_embeddings.has_value() && !*c.tie_word_embeddings) {
    b.Fail("tensor 'lm_head.weight' is missing, and tie_word_embeddings is false");
  }
  return b.Linear(x, "model.embed_tokens", c.vocab_size);
}

Activation ActivationOf(vt::ir::Builder& b, const weights::Config& c) {
  if (c.hidden_act == "gelu_pytorch_tanh" || c.hidden_act == "gelu_new")
    return Activation::kGeluTanh;
  if (c.hidden_act == "gelu") return Activation::kGelu;
  if (c.hidden_act == "relu") return Activation::kRelu;
  if (c.hidden_act != "silu" && c.hidden_act != "swish")
    b.Fail(fmt::format("hidden_act '{}' is not implemented", base::Printable(c.hidden_act)));
  return Activation::kSilu;
}

namespace {

// The weighted sum of a token's experts, and the shared expert, which may have a gate of its own.
ValueId ExpertMlp(vt::ir::Builder& b, const weights::Config& c, const std::string& prefix,
                  ValueId x) {
  const weights::Experts& e = c.experts;
  const ValueId logits = b.Linear(x, prefix + "gate", e.count);
  const vt::ir::Builder::Routed routed =
      b.Router(e.softcap > 0 ? b.SoftCap(logits, static_cast<float>(e.softcap)) : logits,
               {.top_k = e.per_token,
                .sigmoid = e.sigmoid,
                .normalise = e.normalise,
                .scale = static_cast<float>(e.scale),
                .groups = e.groups,
                .top_groups = e.top_groups,
                .group_max = !e.sigmoid,  // DeepSeek-V2's
                .bias = e.bias},
               prefix + "router", e.bias ? prefix + "gate.e_score_correction_bias" : "");
  const ValueId sum = b.ExpertSum(GatedExperts(b, c, prefix, x, routed.ids), routed.weights);
  if (e.shared_intermediate_size == 0) return sum;
  const ValueId shared = GatedMlp(b, c, prefix + "shared_expert.", x, e.shared_intermediate_size);
  if (!e.shared_gate) return b.Add(sum, shared);
  const ValueId share = b.Act(b.Linear(x, prefix + "shared_expert_gate", 1), Activation::kSigmoid);
  return b.Add(sum, b.ScaleRows(shared, share));
}

}  // namespace

ValueId GatedExperts(vt::ir::Builder& b, const weights::Config& c, const std::string& prefix,
                     ValueId x, ValueId ids) {
  const weights::Experts& e = c.experts;
  const std::string p = prefix + "experts.";
  const ValueId gate = b.GroupedLinear(x, ids, p + "gate_proj", e.count, e.intermediate_size);
  const ValueId up = b.GroupedLinear(x, ids, p + "up_proj", e.count, e.intermediate_size);
  return b.GroupedLinear(b.Mul(b.Act(gate, ActivationOf(b, c)), up), ids, p + "down_proj", e.count,
                         c.hidden_size);
}

ValueId GatedMlp(vt::ir::Builder& b, const weights::Config& c, const std::string& prefix, ValueId x,
                 int64_t width) {
  const ValueId gate = b.Linear(x, prefix + "gate_proj", width, c.mlp_bias);
  const ValueId up = b.Linear(x, prefix + "up_proj", width, c.mlp_bias);
  return b.Linear(b.Mul(b.Act(gate, ActivationOf(b, c)), up), prefix + "down_proj", c.hidden_size,
                  c.mlp_bias);
}

ValueId Mlp(vt::ir::Builder& b, const weights::Config& c, int64_t layer, const std::string& prefix,
            ValueId x) {
  return c.IsSparse(layer) ? ExpertMlp(b, c, prefix, x)
                           : GatedMlp(b, c, prefix, x, c.intermediate_size);
}

ValueId DecoderLayers(vt::ir::Builder& b, const weights::Config& c, ValueId x,
                      const std::function<AttentionParts(int64_t layer)>& parts) {
  for (int64_t layer = 0; layer < c.num_hidden_layers; ++layer) {
    const std::string p = fmt::format("model.layers.{}.", layer);
    const ValueId h = b.RmsNorm(x, p + "input_layernorm.weight", c.rms_norm_eps);
    x = b.Add(x, SelfAttention(b, c, layer, p + "self_attn.", h, parts(layer)));
    const ValueId m = b.RmsNorm(x, p + "post_attention_layernorm.weight", c.rms_norm_eps);
    x = b.Add(x, Mlp(b, c, layer, p + "mlp.", m));
  }
  return b.RmsNorm(b.OutputOnly(x), "model.norm.weight", c.rms_norm_eps);
}

ValueId JoinHeads(vt::ir::Builder& b, const std::string& prefix, ValueId x, int64_t heads,
                  int64_t width) {
  return b.Emit(vt::ir::Op::kReshape, prefix + "join_heads", {x},
                {vt::ir::ReshapeAttrs{{vt::ir::T(), vt::ir::Dim(heads * width)}}});
}

}  // namespace vllm::models
