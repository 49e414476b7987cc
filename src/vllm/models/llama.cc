// Llama 2 and 3, Mistral, Mixtral, SmolLM, Qwen 2 and Qwen 3: pre-norm attention and a gated MLP or
// experts. They differ in biases, in Qwen 3's norm of each head's query and key, and in which
// layers attend through a window.
#include "base/strings.h"
#include "vllm/models/parts.h"

namespace vllm::models {
namespace {

using vt::ir::Builder;
using vt::ir::ValueId;

ValueId BuildLlama(Builder& b, const BuildContext& context) {
  const weights::Config& c = context.config;
  const vt::ir::RopeAttrs rope = RopeOf(b, context, c.rope);
  const bool qwen2 = c.family == "qwen2", qwen3 = base::StartsWith(c.family, "qwen3");
  // Qwen 2 has biases on q, k and v alone; Llama's attention_bias means all four.
  const AttentionParts parts = {
      .rope = &rope,
      .qkv_bias = qwen2 || c.attention_bias,
      .out_bias = !qwen2 && c.attention_bias,
      .norm = qwen3 ? AttentionParts::Norm::kHeads : AttentionParts::Norm::kNone};

  const ValueId x = b.Embed("model.embed_tokens.weight", c.vocab_size, c.hidden_size);
  return LmHead(b, c, DecoderLayers(b, c, x, [&](int64_t) { return parts; }));
}

using weights::Family;
using weights::Windows;

Family Llama() {
  return {.name = "llama",
          .architecture = "LlamaForCausalLM",
          .model_type = "llama",
          .gguf = "llama",
          .takes_attention_bias = true,
          .takes_mlp_bias = true,
          .gguf_interleaved = true,
          .writes_gguf = true};
}

Family Mistral() {
  return {.name = "mistral",
          .architecture = "MistralForCausalLM",
          .model_type = "mistral",
          .kv_heads = 8,
          .max_position_embeddings = 131072,
          .windows = Windows::kAll,
          .sliding_window = 4096,
          .writes_gguf = true};
}

Family Mixtral() {
  return {.name = "mixtral",
          .architecture = "MixtralForCausalLM",
          .model_type = "mixtral",
          .gguf = "llama",
          .kv_heads = 8,
          .max_position_embeddings = 131072,
          .eps = 1e-5,
          .rope_theta = 1e6,
          .gguf_interleaved = true,
          .windows = Windows::kAll,
          .experts = weights::ExpertOptions{.defaults = {.count = 8, .per_token = 2},
                                            .every_layer = true,
                                            .size_is_intermediate = true},
          .renames = {{".block_sparse_moe.", ".mlp."},
                      {".w1.weight", ".gate_proj.weight"},
                      {".w2.weight", ".down_proj.weight"},
                      {".w3.weight", ".up_proj.weight"}}};
}

Family Qwen2() {
  return {.name = "qwen2",
          .architecture = "Qwen2ForCausalLM",
          .model_type = "qwen2",
          .gguf = "qwen2",
          .kv_heads = 32,
          .max_position_embeddings = 32768,
          .windows = Windows::kFromLayer,
          .sliding_window = 4096,
          .use_sliding_window = false,
          .writes_gguf = true};
}

Family Qwen3() {
  Family f = Qwen2();
  f.name = f.model_type = f.gguf = "qwen3";
  f.architecture = "Qwen3ForCausalLM";
  f.head_dim = 128;
  f.takes_attention_bias = true;
  return f;
}

Family Qwen3Moe() {
  Family f = Qwen3();
  f.name = f.model_type = "qwen3_moe";
  f.architecture = "Qwen3MoeForCausalLM";
  f.gguf = "qwen3moe";
  f.kv_heads = 4;
  f.head_dim = 0;
  f.windows = Windows::kAll;
  f.experts = weights::ExpertOptions{
      .defaults = {.count = 128, .per_token = 8, .intermediate_size = 768, .normalise = false}};
  f.writes_gguf = false;
  return f;
}

}  // namespace

VLLM_MODEL_FAMILY(llama, BuildLlama, Llama(), Mistral(), Mixtral(), Qwen2(), Qwen3(), Qwen3Moe())

}  // namespace vllm::models
