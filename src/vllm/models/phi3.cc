// Phi-3, Phi-3.5 and Phi-4: Llama's layers, with projections that files store as one and
// frequencies that may be scaled pair by pair (LongRoPE, arXiv 2402.13753).
#include "base/strings.h"
#include "vllm/models/parts.h"
#include "vllm/weights/gguf_reader.h"
#include "vllm/weights/virtual_tensors.h"

namespace vllm::models {
namespace {

using vt::ir::Builder;
using vt::ir::ValueId;

ValueId BuildPhi3(Builder& b, const BuildContext& context) {
  const weights::Config& c = context.config;
  const vt::ir::RopeAttrs rope = RopeOf(b, context, c.rope);
  const ValueId x = b.Embed("model.embed_tokens.weight", c.vocab_size, c.hidden_size);
  return LmHead(b, c,
                DecoderLayers(b, c, x, [&](int64_t) { return AttentionParts{.rope = &rope}; }));
}

base::Status MakeTensors(const weights::Config& c, int64_t, weights::LayerTensors& t) {
  const std::string a = "self_attn.", m = "mlp.";
  const int64_t q = c.num_heads * c.head_dim, kv = c.num_kv_heads * c.head_dim;
  const base::Status status =
      t.Split(a + "qkv_proj.weight", 1,
              {{a + "q_proj.weight", q}, {a + "k_proj.weight", kv}, {a + "v_proj.weight", kv}},
              {c.hidden_size});
  if (!status) return status;
  return t.Split(
      m + "gate_up_proj.weight", 1,
      {{m + "gate_proj.weight", c.intermediate_size}, {m + "up_proj.weight", c.intermediate_size}},
      {c.hidden_size});
}

// The factors themselves are tensors, beside which the file says no type of scaling.
void ReadKeys(weights::GgufReader& r, weights::Config& c) {
  c.rope.original_max_position_embeddings = r.Int("rope.scaling.original_context_length", 0);
  c.rope.attention_factor = r.Number("rope.scaling.attn_factor", 0);
  c.rope_local = c.rope;
}

weights::Family Phi3() {
  return {.name = "phi3",
          .architecture = "Phi3ForCausalLM",
          .model_type = "phi3",
          .gguf = "phi3",
          .max_position_embeddings = 4096,
          .eps = 1e-5,
          .windows = weights::Windows::kAll,
          .read_gguf = ReadKeys,
          .names = {{"attn_qkv", "self_attn.qkv_proj"}, {"ffn_up", "mlp.gate_up_proj"}},
          .make_tensors = MakeTensors};
}

}  // namespace

VLLM_MODEL_FAMILY(phi3, BuildPhi3, Phi3())

}  // namespace vllm::models
