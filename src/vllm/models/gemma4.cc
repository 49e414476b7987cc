// Gemma 4 (text): Gemma 3's layers, of which those without a window have heads of another size;
// values are normed, and may be the keys; the last layers may read the keys and values of earlier
// ones; a layer may have experts beside its MLP, an embedding of its own of each token, and ends in
// a scale.
#include <cmath>

#include "base/strings.h"
#include "vllm/models/gemma4_files.h"
#include "vllm/models/parts.h"

namespace vllm::models {
namespace {

using vt::ir::Builder;
using vt::ir::ValueId;
using weights::Config;
using namespace gemma4;  // NOLINT: names of options

ValueId Norm(Builder& b, const Config& c, ValueId x, const std::string& name) {
  return b.RmsNorm(x, name + ".weight", c.rms_norm_eps);
}

// GGUF has no key for it, but lacks the weight.
bool KeyIsValue(Builder& b, const Config& c, const std::string& p) {
  return c.from_gguf ? !b.Has(p + "v_proj.weight") : c.Option(kKeyIsValue) != 0;
}

ValueId Attention(Builder& b, const Config& c, int64_t layer, ValueId x,
                  const vt::ir::RopeAttrs& rope) {
  const bool full = IsFull(c, layer);
  const auto name = [](int64_t l) { return fmt::format("model.layers.{}.self_attn", l); };
  const std::string p = name(layer) + ".";
  const bool key_is_value = full && KeyIsValue(b, c, p);
  const vt::ir::AttentionAttrs attrs = {
      .heads = c.num_heads,
      .kv_heads = key_is_value && c.Option(kKvHeads) > 0 ? c.IntOption(kKvHeads) : c.num_kv_heads,
      .head_dim = full ? c.IntOption(kHeadDim) : c.head_dim,
      .scale = 1,
      .window = c.WindowOf(layer)};
  const auto project = [&](const char* to, int64_t heads) {
    const ValueId y = b.Linear(x, p + to, heads * attrs.head_dim, c.attention_bias);
    return b.Heads(y, heads, attrs.head_dim);
  };
  const ValueId q = b.Rope(Norm(b, c, project("q_proj", c.num_heads), p + "q_norm"), rope);
  const int64_t of = KvLayer(c, layer);
  ValueId a = vt::ir::kNone;
  if (of != layer) {
    a = b.AttentionOf(name(of), q, attrs, name(layer));
  } else {
    const ValueId k = project("k_proj", attrs.kv_heads);
    const ValueId v = key_is_value ? k : project("v_proj", attrs.kv_heads);
    a = b.Attention(q, b.Rope(Norm(b, c, k, p + "k_norm"), rope), b.RmsNorm(v, "", c.rms_norm_eps),
                    attrs, name(layer));
  }
  return b.Linear(a, p + "o_proj", c.hidden_size, c.attention_bias);
}

ValueId Experts(Builder& b, const Config& c, const std::string& p, ValueId x) {
  const ValueId r = b.Scale(b.RmsNorm(x, p + "router.scale", c.rms_norm_eps),
                            1 / std::sqrt(static_cast<float>(c.hidden_size)));
  const Builder::Routed routed =
      b.Router(b.Linear(r, p + "mlp.gate", c.experts.count),
               {.top_k = c.experts.per_token, .normalise = true, .expert_scales = true},
               p + "router", "", p + "router.per_expert_scale");
  const ValueId h = Norm(b, c, x, p + "pre_feedforward_layernorm_2");
  return b.ExpertSum(GatedExperts(b, c, p + "mlp.", h, routed.ids), routed.weights);
}

// [T, layers * width]: what each layer is given of a token beside the layer before.
ValueId LayerInputs(Builder& b, const Config& c, ValueId x, int64_t width) {
  const int64_t all = c.num_hidden_layers * width;
  const ValueId token =
      b.Scale(b.Embed("model.embed_tokens_per_layer.weight", c.IntOption(kInputVocabulary), all),
              std::sqrt(static_cast<float>(width)));
  const ValueId y = b.Scale(b.Linear(x, "model.per_layer_model_projection", all),
                            1 / std::sqrt(static_cast<float>(c.hidden_size)));
  const ValueId normed =
      Norm(b, c, b.Heads(y, c.num_hidden_layers, width), "model.per_layer_projection_norm");
  const ValueId sum = b.Add(normed, b.Heads(token, c.num_hidden_layers, width));
  const vt::ir::ReshapeAttrs flat = {{vt::ir::T(), vt::ir::Dim(all)}};
  return b.Emit(vt::ir::Op::kReshape, "model.per_layer_inputs", {b.Scale(sum, std::sqrt(0.5f))},
                {flat});
}

ValueId BuildGemma4(Builder& b, const BuildContext& context) {
  const Config& c = context.config;
  const vt::ir::RopeAttrs global = RopeOf(b, context, c.rope, c.IntOption(kHeadDim));
  const vt::ir::RopeAttrs local = RopeOf(b, context, c.rope_local);
  const int64_t width = c.IntOption(kInputs);
  ValueId x = b.Scale(b.Embed("model.embed_tokens.weight", c.vocab_size, c.hidden_size),
                      std::sqrt(static_cast<float>(c.hidden_size)));
  const ValueId inputs = width > 0 ? LayerInputs(b, c, x, width) : vt::ir::kNone;
  for (int64_t layer = 0; layer < c.num_hidden_layers; ++layer) {
    const std::string p = fmt::format("model.layers.{}.", layer);
    const auto norm = [&](ValueId v, const char* name) { return Norm(b, c, v, p + name); };
    const ValueId a =
        Attention(b, c, layer, norm(x, "input_layernorm"), IsFull(c, layer) ? global : local);
    x = b.Add(x, norm(a, "post_attention_layernorm"));
    const bool wide = c.Option(kWide) != 0 && KvLayer(c, layer) != layer;
    ValueId m = GatedMlp(b, c, p + "mlp.", norm(x, "pre_feedforward_layernorm"),
                         c.intermediate_size * (wide ? 2 : 1));
    if (c.IsSparse(layer)) {
      m = b.Add(norm(m, "post_feedforward_layernorm_1"),
                norm(Experts(b, c, p, x), "post_feedforward_layernorm_2"));
    }
    x = b.Add(x, norm(m, "post_feedforward_layernorm"));
    if (width > 0) {
      const ValueId gate =
          b.Act(b.Linear(x, p + "per_layer_input_gate", width), ActivationOf(b, c));
      const ValueId y = b.Linear(b.Mul(gate, b.Slice(inputs, layer * width, width)),
                                 p + "per_layer_projection", c.hidden_size);
      x = b.Add(x, norm(y, "post_per_layer_input_norm"));
    }
    x = b.Mul(x, b.Weight(p + "layer_scalar.weight", {c.hidden_size}));
  }
  const ValueId logits = LmHead(b, c, Norm(b, c, b.OutputOnly(x), "model.norm"));
  return c.final_logit_softcapping > 0 ? b.SoftCap(logits, c.final_logit_softcapping) : logits;
}

}  // namespace

VLLM_MODEL_FAMILY(gemma4, BuildGemma4, gemma4::Describe())

}  // namespace vllm::models
