// Llama 2 and 3, Mistral, Mixtral, SmolLM, Qwen 2 and Qwen 3: pre-norm attention and a gated MLP or
// experts. They differ in biases, in Qwen 3's norm of each head's query and key, and in which
// layers attend through a window.
#include <cmath>

#include "base/strings.h"
#include "vllm/models/parts.h"

namespace vllm::models {
namespace {

using vt::ir::Builder;
using vt::ir::ValueId;

ValueId BuildLlama(Builder& b, const BuildContext& context) {
  const weights::Config& c = context.config;
  const vt::ir::RopeAttrs rope = RopeOf(b, context, c.rope);
  const int64_t hd = c.head_dim;
  // Qwen 2 has biases on q, k and v alone; Llama's attention_bias means all four.
  const bool qkv_bias = c.family == "qwen2" || c.attention_bias;
  const bool head_norm = c.family == "qwen3" || c.family == "qwen3_moe";

  ValueId x = b.Embed("model.embed_tokens.weight", c.vocab_size, c.hidden_size);
  for (int64_t layer = 0; layer < c.num_hidden_layers; ++layer) {
    const std::string p = fmt::format("model.layers.{}.", layer);
    const ValueId h = b.RmsNorm(x, p + "input_layernorm.weight", c.rms_norm_eps);
    ValueId q =
        b.Heads(b.Linear(h, p + "self_attn.q_proj", c.num_heads * hd, qkv_bias), c.num_heads, hd);
    ValueId k = b.Heads(b.Linear(h, p + "self_attn.k_proj", c.num_kv_heads * hd, qkv_bias),
                        c.num_kv_heads, hd);
    const ValueId v = b.Heads(b.Linear(h, p + "self_attn.v_proj", c.num_kv_heads * hd, qkv_bias),
                              c.num_kv_heads, hd);
    if (head_norm) {
      q = b.RmsNorm(q, p + "self_attn.q_norm.weight", c.rms_norm_eps);
      k = b.RmsNorm(k, p + "self_attn.k_norm.weight", c.rms_norm_eps);
    }
    const vt::ir::AttentionAttrs attention = {.heads = c.num_heads,
                                              .kv_heads = c.num_kv_heads,
                                              .head_dim = hd,
                                              .scale = 1 / std::sqrt(static_cast<float>(hd)),
                                              .window = c.WindowOf(layer)};
    const ValueId a = b.Attention(b.Rope(q, rope), b.Rope(k, rope), v, attention, p + "self_attn");
    x = b.Add(x, b.Linear(a, p + "self_attn.o_proj", c.hidden_size,
                          c.attention_bias && c.family != "qwen2"));
    const ValueId m = b.RmsNorm(x, p + "post_attention_layernorm.weight", c.rms_norm_eps);
    x = b.Add(x, Mlp(b, c, layer, p + "mlp.", m));
  }
  return LmHead(b, c, b.RmsNorm(b.OutputOnly(x), "model.norm.weight", c.rms_norm_eps));
}

}  // namespace

VLLM_MODEL_FAMILY(llama, BuildLlama, "llama", "mistral", "mixtral", "qwen2", "qwen3", "qwen3_moe")

}  // namespace vllm::models
