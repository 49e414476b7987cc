// SmolLM3: Llama's layers, of which every fourth doesn't rotate.
#include "vllm/models/parts.h"
#include "vllm/weights/gguf_reader.h"

namespace vllm::models {
namespace {

using vt::ir::Builder;
using vt::ir::ValueId;

ValueId BuildSmolLm3(Builder& b, const BuildContext& context) {
  const weights::Config& c = context.config;
  const vt::ir::RopeAttrs rope = RopeOf(b, context, c.rope);
  const ValueId x = b.Embed("model.embed_tokens.weight", c.vocab_size, c.hidden_size);
  return LmHead(b, c, DecoderLayers(b, c, x, [&](int64_t layer) {
                  return AttentionParts{.rope = c.IsRotated(layer) ? &rope : nullptr,
                                        .qkv_bias = c.attention_bias,
                                        .out_bias = c.attention_bias};
                }));
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
