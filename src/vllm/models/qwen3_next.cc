// Qwen3-Next and Qwen 3.5 / 3.6 (text), dense and with experts: most layers are Gated DeltaNet (a
// recurrent state in place of a KV cache), the others attention whose output is gated by a sigmoid.
// All norms but the gated one are zero-centred; only a part of a head's dimensions is rotated.
#include <cmath>

#include "base/strings.h"
#include "vllm/models/parts.h"
#include "vllm/models/qwen3_next_files.h"

namespace vllm::models {
namespace {

using vt::ir::Activation;
using vt::ir::Builder;
using vt::ir::ValueId;

ValueId GatedAttention(Builder& b, const weights::Config& c, const vt::ir::RopeAttrs& rope,
                       const std::string& p, ValueId h) {
  const int64_t hd = c.head_dim;
  const bool bias = c.attention_bias;
  const auto heads = [&](const char* name, int64_t count) {
    return b.Heads(b.Linear(h, p + name, count * hd, bias), count, hd);
  };
  const auto norm = [&](ValueId v, const char* name) {
    return b.RmsNorm(v, p + name, c.rms_norm_eps, c.norm_weight_offset);
  };
  const ValueId q = norm(heads("q_proj", c.num_heads), "q_norm.weight");
  const ValueId k = norm(heads("k_proj", c.num_kv_heads), "k_norm.weight");
  const ValueId v = heads("v_proj", c.num_kv_heads);
  const ValueId gate = b.Linear(h, p + "q_gate", c.num_heads * hd, bias);
  const vt::ir::AttentionAttrs attention = {.heads = c.num_heads,
                                            .kv_heads = c.num_kv_heads,
                                            .head_dim = hd,
                                            .scale = 1 / std::sqrt(static_cast<float>(hd))};
  const ValueId a =
      b.Attention(b.Rope(q, rope), b.Rope(k, rope), v, attention, p.substr(0, p.size() - 1));
  return b.Linear(b.Mul(a, b.Act(gate, Activation::kSigmoid)), p + "o_proj", c.hidden_size, bias);
}

ValueId GatedDeltaNet(Builder& b, const weights::Config& c, const std::string& p, ValueId h) {
  const weights::DeltaNet& d = c.delta;
  const int64_t width = d.v_heads * d.v_dim;
  const ValueId qkv = b.Linear(h, p + "in_proj_qkv", d.channels());
  const ValueId z = b.Heads(b.Linear(h, p + "in_proj_z", width), d.v_heads, d.v_dim);
  const ValueId beta = b.Linear(h, p + "in_proj_b", d.v_heads);
  const ValueId alpha = b.Linear(h, p + "in_proj_a", d.v_heads);
  const ValueId y = b.GatedDeltaNet(
      qkv, alpha, beta,
      {.k_heads = d.k_heads,
       .v_heads = d.v_heads,
       .k_dim = d.k_dim,
       .v_dim = d.v_dim,
       .log_a = d.log_a,
       .tiled = d.tiled},
      d.conv_width, {p + "conv1d.weight", p + (d.log_a ? "A_log" : "A"), p + "dt_bias"},
      p.substr(0, p.size() - 1));
  const ValueId gated =
      b.Mul(b.RmsNorm(y, p + "norm.weight", c.rms_norm_eps), b.Act(z, Activation::kSilu));
  return b.Linear(JoinHeads(b, p, gated, d.v_heads, d.v_dim), p + "out_proj", c.hidden_size);
}

ValueId BuildQwen3Next(Builder& b, const BuildContext& context) {
  const weights::Config& c = context.config;
  const vt::ir::RopeAttrs rope = RopeOf(b, context, c.rope);
  const auto norm = [&](ValueId v, const std::string& name) {
    return b.RmsNorm(v, name + ".weight", c.rms_norm_eps, c.norm_weight_offset);
  };
  ValueId x = b.Embed("model.embed_tokens.weight", c.vocab_size, c.hidden_size);
  for (int64_t layer = 0; layer < c.num_hidden_layers; ++layer) {
    const std::string p = fmt::format("model.layers.{}.", layer);
    const ValueId h = norm(x, p + "input_layernorm");
    x = b.Add(x, c.IsLinear(layer) ? GatedDeltaNet(b, c, p + "linear_attn.", h)
                                   : GatedAttention(b, c, rope, p + "self_attn.", h));
    x = b.Add(x, Mlp(b, c, layer, p + "mlp.", norm(x, p + "post_attention_layernorm")));
  }
  return LmHead(b, c, norm(b.OutputOnly(x), "model.norm"));
}

weights::Family Qwen3Next() {
  return {.name = "qwen3_next",
          .architecture = "Qwen3NextForCausalLM",
          .model_type = "qwen3_next",
          .gguf = "qwen3next",
          .kv_heads = 2,
          .head_dim = 256,
          .max_position_embeddings = 32768,
          .norm_weight_offset = 1,
          .takes_attention_bias = true,
          .partial_rotary_factor = 0.25,
          .linear_layers = true,
          .experts = weights::ExpertOptions{.defaults = {.count = 512,
                                                         .per_token = 10,
                                                         .intermediate_size = 512,
                                                         .shared_intermediate_size = 512}},
          .read_json = ReadDeltaNet,
          .read_gguf = ReadDeltaNetKeys,
          // Gated attention's attn_q holds the gate too. GGUF's A is -exp of Hugging Face's A_log.
          .names = {{"attn_q", "self_attn.q_proj"},
                    {"attn_q", "self_attn.q_gate"},
                    {"post_attention_norm", "post_attention_layernorm"},
                    {"attn_qkv", "linear_attn.in_proj_qkv"},
                    {"attn_gate", "linear_attn.in_proj_z"},
                    {"ssm_beta", "linear_attn.in_proj_b"},
                    {"ssm_alpha", "linear_attn.in_proj_a"},
                    {"ssm_ba", "linear_attn.in_proj_ba"},
                    {"ssm_in", "linear_attn.in_proj_qkvz"},
                    {"ssm_conv1d", "linear_attn.conv1d"},
                    {"ssm_norm", "linear_attn.norm"},
                    {"ssm_out", "linear_attn.out_proj"},
                    {"ssm_dt.bias", "linear_attn.dt_bias"},
                    {"ssm_a", "linear_attn.A"}},
          .make_tensors = MakeDeltaNetTensors};
}

weights::Family Qwen35() {
  weights::Family f = Qwen3Next();
  f.name = f.wider_type = "qwen3_5";
  f.architecture = "Qwen3_5ForCausalLM";
  f.model_type = "qwen3_5_text";
  f.wider_architecture = "Qwen3_5ForConditionalGeneration";
  f.gguf = "qwen35";
  f.kv_heads = 4;
  f.experts.reset();
  return f;
}

weights::Family Qwen35Moe() {
  weights::Family f = Qwen3Next();
  f.name = f.wider_type = "qwen3_5_moe";
  f.architecture = "Qwen3_5MoeForCausalLM";
  f.model_type = "qwen3_5_moe_text";
  f.wider_architecture = "Qwen3_5MoeForConditionalGeneration";
  f.gguf = "qwen35moe";
  f.dense = false;
  f.experts = weights::ExpertOptions{.defaults = {.count = 256,
                                                  .per_token = 8,
                                                  .intermediate_size = 512,
                                                  .shared_intermediate_size = 512},
                                     .every_layer = true};
  return f;
}

}  // namespace

VLLM_MODEL_FAMILY(qwen3_next, BuildQwen3Next, Qwen3Next(), Qwen35(), Qwen35Moe())

}  // namespace vllm::models
