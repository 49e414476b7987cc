// ERNIE 4.5 (text), dense and with experts: Llama's layers, rotating neighbours, with biases
// everywhere or nowhere. Experts are ranked by softmax and a bias.
#include "base/json.h"
#include "base/strings.h"
#include "vllm/models/parts.h"
#include "vllm/weights/gguf_reader.h"
#include "vllm/weights/virtual_tensors.h"

namespace vllm::models {
namespace {

using vt::ir::Builder;
using vt::ir::ValueId;

ValueId BuildErnie(Builder& b, const BuildContext& context) {
  const weights::Config& c = context.config;
  const vt::ir::RopeAttrs rope = RopeOf(b, context, c.rope);
  const AttentionParts parts = {.rope = &rope, .qkv_bias = c.mlp_bias, .out_bias = c.mlp_bias};
  const ValueId x = b.Embed("model.embed_tokens.weight", c.vocab_size, c.hidden_size);
  const ValueId logits = LmHead(b, c, DecoderLayers(b, c, x, [&](int64_t) { return parts; }));
  if (!c.mlp_bias || !c.experts.count) return logits;
  return b.Add(logits, b.Weight("lm_head.bias", {c.vocab_size}));
}

base::Status ReadBias(const boost::json::object&, weights::Config& c) {
  c.mlp_bias = c.Option("use_bias") != 0;
  return {};
}

// Experts stand in every moe_layer_interval-th layer from moe_layer_start_index to
// moe_layer_end_index.
void PlaceExperts(weights::Config& c) {
  const int64_t first = c.IntOption("moe_layer_start_index"),
                last = c.IntOption("moe_layer_end_index"),
                interval = c.IntOption("moe_layer_interval");
  for (int64_t layer = 0; layer < c.num_hidden_layers; ++layer) {
    c.sparse_layers[static_cast<size_t>(layer)] =
        (layer + 1) % interval == 0 && layer >= first && (last < 0 || layer <= last);
  }
}

base::Status ReadExperts(const boost::json::object& o, weights::Config& c) {
  const base::Result<std::string> gate = base::JsonString(o, "moe_gate", "topk");
  if (!gate) return gate.error();
  if (*gate != "topk")
    return base::Error{base::Code::kUnsupported,
                       fmt::format("moe_gate '{}' is not implemented", base::Printable(*gate))};
  weights::Experts& e = c.experts;
  e.count = c.IntOption("moe_num_experts");
  e.per_token = c.IntOption("moe_k");
  e.shared_intermediate_size = c.IntOption("moe_num_shared_experts") * e.intermediate_size;
  PlaceExperts(c);
  return ReadBias(o, c);
}

// The bias of experts has a dimension of its groups, of which there is one.
base::Status FlattenBias(const weights::Config& c, int64_t, weights::LayerTensors& t) {
  t.Reshape("mlp.gate.e_score_correction_bias", {1, c.experts.count}, {c.experts.count});
  return {};
}

weights::Family Ernie() {
  return {.name = "ernie4_5",
          .architecture = "Ernie4_5ForCausalLM",
          .model_type = "ernie4_5",
          .gguf = "ernie4_5",
          .kv_heads = 2,
          .head_dim = 128,
          .max_position_embeddings = 131072,
          .eps = 1e-5,
          .tied = true,
          .rope_theta = 500000,
          .interleaved = true,
          .options = {{"use_bias", "", 0}},
          .read_json = ReadBias};
}

weights::Family ErnieMoe() {
  weights::Family f = Ernie();
  f.name = f.model_type = "ernie4_5_moe";
  f.architecture = "Ernie4_5_MoeForCausalLM";
  f.gguf = "ernie4_5-moe";
  f.kv_heads = 4;
  f.head_dim = 0;
  f.experts = weights::ExpertOptions{.defaults = {.count = 64,
                                                  .per_token = 6,
                                                  .intermediate_size = 1536,
                                                  .shared_intermediate_size = 3072,
                                                  .shared_gate = false,
                                                  .bias = true}};
  f.options = {{"use_bias", "", 0},
               {"moe_num_experts", "", 64, 1, 1 << 14},
               {"moe_k", "", 6, 1, 1 << 10},
               {"moe_num_shared_experts", "", 2, 0, 1 << 10},
               {"moe_layer_start_index", "leading_dense_block_count", 1},
               {"moe_layer_end_index", "", -1, -1},
               {"moe_layer_interval", "interleave_moe_layer_step", 1, 1},
               {"moe_norm_min", "", 1e-12, 0, 1e-9}};  // so small that it doesn't matter
  f.known = {"moe_capacity", "moe_gate", "moe_use_aux_free"};
  f.read_json = ReadExperts;
  f.read_gguf = [](weights::GgufReader&, weights::Config& c) { PlaceExperts(c); };
  f.renames = {{".mlp.shared_experts.", ".mlp.shared_expert."},
               {".mlp.moe_statics.", ".mlp.gate."},
               {".mlp.gate.moe_statics.", ".mlp.gate."}};
  f.names = {{"exp_probs_b.bias", "mlp.gate.e_score_correction_bias"}};
  f.make_tensors = FlattenBias;
  return f;
}

}  // namespace

VLLM_MODEL_FAMILY(ernie, BuildErnie, Ernie(), ErnieMoe())

}  // namespace vllm::models
