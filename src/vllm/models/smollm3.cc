// SmolLM3: Llama's layers, of which every fourth doesn't rotate.
#include "base/strings.h"
#include "vllm/models/parts.h"
#include "vllm/weights/gguf_reader.h"

namespace vllm::models {
namespace {

using vt::ir::Builder;
using vt::ir::ValueId;

ValueId BuildSmolLm3(Builder& b, const BuildContext& context) {
  const weights::Config& c = context.config;
  const vt::ir::RopeAttrs rope = RopeOf(b, context, c.rope);
  ValueId x = b.Embed("model.embed_tokens.weight", c.vocab_size, c.hidden_size);
  for (int64_t layer = 0; layer < c.num_hidden_layers; ++layer) {
    const std::string p = fmt::format("model.layers.{}.", layer);
    const AttentionParts parts = {.rope = c.IsRotated(layer) ? &rope : nullptr,
                                  .qkv_bias = c.attention_bias,
                                  .out_bias = c.attention_bias};
    const ValueId h = b.RmsNorm(x, p + "input_layernorm.weight", c.rms_norm_eps);
    x = b.Add(x, SelfAttention(b, c, layer, p + "self_attn.", h, parts));
    const ValueId m = b.RmsNorm(x, p + "post_attention_layernorm.weight", c.rms_norm_eps);
    x = b.Add(x, Mlp(b, c, layer, p + "mlp.", m));
  }
  return LmHead(b, c, b.RmsNorm(b.OutputOnly(x), "model.norm.weight", c.rms_norm_eps));
}

weights::Family SmolLm3() {
  return {.name = "smollm3",
          .architecture = "SmolLM3ForCausalLM",
          .model_type = "smollm3",
          .gguf = "smollm3",
          .kv_heads = 4,
          .max_position_embeddings = 32768,
          .tied = true,
          .takes_attention_bias = true,
          .takes_mlp_bias = true,
          .rope_theta = 2e6,
          .gguf_interleaved = true,
          .options = {{.json = "no_rope_layer_interval", .fallback = 4, .least = 1}},
          .known = {"no_rope_layers"},
          .read_json = ReadUnrotated,
          // llama.cpp's graph knows it; a file doesn't say.
          .read_gguf = [](weights::GgufReader&, weights::Config& c) { SkipEvery(4, c); }};
}

}  // namespace

VLLM_MODEL_FAMILY(smollm3, BuildSmolLm3, SmolLm3())

}  // namespace vllm::models
