// Gemma 2 and 3 (text): norms before and after each block (a sandwich around the residual),
// embeddings scaled by sqrt(width), windows on most layers. Gemma 2 caps its scores and logits;
// Gemma 3 norms each head's query and key and has its own rope base on windowed layers.
#include <cmath>

#include "base/json.h"
#include "base/strings.h"
#include "vllm/models/parts.h"
#include "vllm/weights/gguf_reader.h"

namespace vllm::models {
namespace {

using vt::ir::Builder;
using vt::ir::ValueId;

ValueId BuildGemma(Builder& b, const BuildContext& context) {
  const weights::Config& c = context.config;
  const bool gemma3 = c.family == "gemma3";
  const vt::ir::RopeAttrs global = RopeOf(b, context, c.rope);
  const vt::ir::RopeAttrs local = gemma3 ? RopeOf(b, context, c.rope_local) : global;
  const auto norm = [&](ValueId v, const std::string& name) {
    return b.RmsNorm(v, name + ".weight", c.rms_norm_eps, c.norm_weight_offset);
  };

  ValueId x = b.Scale(b.Embed("model.embed_tokens.weight", c.vocab_size, c.hidden_size),
                      std::sqrt(static_cast<float>(c.hidden_size)));
  for (int64_t layer = 0; layer < c.num_hidden_layers; ++layer) {
    const std::string p = fmt::format("model.layers.{}.", layer);
    const AttentionParts parts = {
        .rope = c.WindowOf(layer) > 0 ? &local : &global,
        .qkv_bias = c.attention_bias,
        .out_bias = c.attention_bias,
        .norm = gemma3 ? AttentionParts::Norm::kHeads : AttentionParts::Norm::kNone,
        .scale = 1 / std::sqrt(static_cast<float>(c.query_pre_attn_scalar))};
    const ValueId h = norm(x, p + "input_layernorm");
    const ValueId o = SelfAttention(b, c, layer, p + "self_attn.", h, parts);
    x = b.Add(x, norm(o, p + "post_attention_layernorm"));
    const ValueId m = Mlp(b, c, layer, p + "mlp.", norm(x, p + "pre_feedforward_layernorm"));
    x = b.Add(x, norm(m, p + "post_feedforward_layernorm"));
  }
  const ValueId logits = LmHead(b, c, norm(b.OutputOnly(x), "model.norm"));
  return c.final_logit_softcapping > 0 ? b.SoftCap(logits, c.final_logit_softcapping) : logits;
}

// A cap that is null is no cap, one that is absent is the family's.
base::Status ReadScores(const boost::json::object& o, weights::Config& c) {
  const bool two = c.family == "gemma2";
  const auto cap = [&](std::string_view key, double fallback) {
    return base::JsonNumber(o, key, o.contains(key) ? 0 : fallback);
  };
  const base::Result<double> scalar = base::JsonNumber(o, "query_pre_attn_scalar", 256);
  const base::Result<double> attention = cap("attn_logit_softcapping", two ? 50 : 0);
  const base::Result<double> final_cap = cap("final_logit_softcapping", two ? 30 : 0);
  for (const base::Result<double>* r : {&scalar, &attention, &final_cap}) {
    if (!*r) return r->error();
  }
  c.query_pre_attn_scalar = *scalar;
  c.attn_logit_softcapping = static_cast<float>(*attention);
  c.final_logit_softcapping = static_cast<float>(*final_cap);
  return {};
}

void ReadScoreKeys(weights::GgufReader& r, weights::Config& c) {
  const bool two = c.family == "gemma2";
  c.attn_logit_softcapping = static_cast<float>(r.Number("attn_logit_softcapping", two ? 50 : 0));
  c.final_logit_softcapping = static_cast<float>(r.Number("final_logit_softcapping", two ? 30 : 0));
  const double scale = r.Number("attention.scale", 0);
  if (scale > 0) {
    c.query_pre_attn_scalar = 1 / (scale * scale);
  } else if (c.num_hidden_layers == (two ? 46 : 62)) {
    // The 27B models alone scale by hidden_size / heads, which GGUF doesn't say: they are known by
    // their layers.
    c.query_pre_attn_scalar = static_cast<double>(c.hidden_size) / static_cast<double>(c.num_heads);
  }
}

weights::Family Gemma2() {
  return {.name = "gemma2",
          .architecture = "Gemma2ForCausalLM",
          .model_type = "gemma2",
          .gguf = "gemma2",
          .kv_heads = 4,
          .head_dim = 256,
          .max_position_embeddings = 8192,
          .activation_key = "hidden_activation",
          .activation = "gelu_pytorch_tanh",
          .norm_weight_offset = 1,
          .tied = true,
          .takes_attention_bias = true,
          .windows = weights::Windows::kPeriod,
          .window_period = 2,
          .sliding_window = 4096,
          .gguf_sliding_window = 4096,
          .known = {"query_pre_attn_scalar", "attn_logit_softcapping", "final_logit_softcapping",
                    "attention.scale"},
          .read_json = ReadScores,
          .read_gguf = ReadScoreKeys,
          .names = {{"post_attention_norm", "post_attention_layernorm"},
                    {"ffn_norm", "pre_feedforward_layernorm"},
                    {"post_ffw_norm", "post_feedforward_layernorm"}},
          .writes_gguf = true};
}

weights::Family Gemma3() {
  weights::Family f = Gemma2();
  f.name = f.gguf = f.wider_type = "gemma3";
  f.architecture = "Gemma3ForCausalLM";
  f.model_type = "gemma3_text";
  f.wider_architecture = "Gemma3ForConditionalGeneration";
  f.heads = 8;
  f.vocab_size = 262208;
  f.max_position_embeddings = 131072;
  f.rope_theta = 1e6;
  f.own_local_rope = true;
  f.window_period = 6;
  f.gguf_sliding_window = 0;
  return f;
}

}  // namespace

VLLM_MODEL_FAMILY(gemma, BuildGemma, Gemma2(), Gemma3())

}  // namespace vllm::models
