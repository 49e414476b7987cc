// Llama 4 (text): layers that rotate see only the chunk that they are in, the others see all and
// scale their queries by the position; experts that are given their token scaled by the router's
// score, beside a shared one.
#include <cmath>

#include "base/json.h"
#include "base/strings.h"
#include "vllm/models/parts.h"
#include "vllm/weights/gguf_reader.h"
#include "vllm/weights/virtual_tensors.h"

namespace vllm::models {
namespace {

using vt::ir::Builder;
using vt::ir::ValueId;
namespace json = boost::json;

// `rope` turns layers that rotate, `growth` the queries of the others.
ValueId Attention(Builder& b, const weights::Config& c, int64_t layer, const std::string& p,
                  ValueId x, const vt::ir::RopeAttrs& rope, const vt::ir::RopeAttrs& growth) {
  const auto project = [&](const char* name, int64_t heads) {
    return b.Heads(b.Linear(x, p + name, heads * c.head_dim, c.attention_bias), heads, c.head_dim);
  };
  const auto turn = [&](ValueId v) {
    v = b.Rope(v, rope);
    return c.Option("use_qk_norm") != 0 ? b.RmsNorm(v, "", c.rms_norm_eps) : v;
  };
  ValueId q = project("q_proj", c.num_heads), k = project("k_proj", c.num_kv_heads);
  const ValueId v = project("v_proj", c.num_kv_heads);
  if (c.IsRotated(layer)) {
    q = turn(q);
    k = turn(k);
  } else if (growth.growth > 0) {
    q = b.Rope(q, growth);
  }
  const vt::ir::AttentionAttrs attrs = {.heads = c.num_heads,
                                        .kv_heads = c.num_kv_heads,
                                        .head_dim = c.head_dim,
                                        .scale = 1 / std::sqrt(static_cast<float>(c.head_dim)),
                                        .window = c.WindowOf(layer),
                                        .chunked = true};
  const ValueId a = b.Attention(q, k, v, attrs, p.substr(0, p.size() - 1));
  return b.Linear(a, p + "o_proj", c.hidden_size, c.attention_bias);
}

ValueId Experts(Builder& b, const weights::Config& c, const std::string& p, ValueId x) {
  const weights::Experts& e = c.experts;
  const int64_t k = e.per_token;
  const Builder::Routed routed =
      b.Router(b.Linear(x, p + "gate", e.count), {.top_k = k, .sigmoid = true}, p + "router");
  const auto reshape = [&](ValueId v, vt::ir::ReshapeAttrs to, const char* name) {
    return b.Emit(vt::ir::Op::kReshape, p + name, {v}, {std::move(to)});
  };
  ValueId y;
  if (k == 1) {  // as published; its MLP stays one that devices fuse
    y = reshape(GatedExperts(b, c, p, b.ScaleRows(x, routed.weights), routed.ids),
                {{vt::ir::T(), vt::ir::Dim(c.hidden_size)}}, "expert");
  } else {
    // Each expert would read rows of its own. Its matrices are linear, so the score may meet what
    // the gate gives, before its activation, and the sum in place of what goes up.
    const std::string experts = p + "experts.";
    const auto project = [&](const char* name) {
      return b.GroupedLinear(x, routed.ids, experts + name, e.count, e.intermediate_size);
    };
    const ValueId scores =
        reshape(routed.weights, {{vt::ir::T(), vt::ir::Dim(k), vt::ir::Dim(1)}}, "scores");
    const ValueId gate = b.Act(b.ScaleRows(project("gate_proj"), scores), ActivationOf(b, c));
    const ValueId down = b.GroupedLinear(b.Mul(gate, project("up_proj")), routed.ids,
                                         experts + "down_proj", e.count, c.hidden_size);
    y = b.ExpertSum(down, routed.weights);
  }
  return b.Add(GatedMlp(b, c, p + "shared_expert.", x, e.shared_intermediate_size), y);
}

ValueId BuildLlama4(Builder& b, const BuildContext& context) {
  const weights::Config& c = context.config;
  const vt::ir::RopeAttrs rope = RopeOf(b, context, c.rope);
  const bool tuned = c.Option("attn_temperature_tuning") != 0;
  const vt::ir::RopeAttrs growth = {
      .rotary_dim = c.head_dim,
      .growth = tuned ? static_cast<float>(c.Option("attn_scale")) : 0,
      .floor = static_cast<float>(c.Option("floor_scale")),
      .frequencies = std::vector<float>(static_cast<size_t>(c.head_dim / 2))};
  ValueId x = b.Embed("model.embed_tokens.weight", c.vocab_size, c.hidden_size);
  for (int64_t layer = 0; layer < c.num_hidden_layers; ++layer) {
    const std::string p = fmt::format("model.layers.{}.", layer);
    const ValueId h = b.RmsNorm(x, p + "input_layernorm.weight", c.rms_norm_eps);
    x = b.Add(x, Attention(b, c, layer, p + "self_attn.", h, rope, growth));
    const ValueId m = b.RmsNorm(x, p + "post_attention_layernorm.weight", c.rms_norm_eps);
    x = b.Add(x, c.IsSparse(layer) ? Experts(b, c, p + "mlp.", m)
                                   : GatedMlp(b, c, p + "mlp.", m, c.intermediate_size));
  }
  return LmHead(b, c, b.RmsNorm(b.OutputOnly(x), "model.norm.weight", c.rms_norm_eps));
}

// Chunks are windows that begin anew, and the plain names of sizes are those of experts.
void Rewrite(json::object& o) {
  const auto rename = [&](std::string_view from, std::string_view to, json::value fallback) {
    const json::value* v = base::JsonGiven(o, from);
    o[to] = v != nullptr ? json::value(*v) : std::move(fallback);
  };
  rename("attention_chunk_size", "sliding_window", 8192);
  rename("intermediate_size", "moe_intermediate_size", 8192);
  rename("intermediate_size", "shared_expert_intermediate_size", 8192);
  rename("intermediate_size_mlp", "intermediate_size", 16384);
  rename("interleave_moe_layer_step", "decoder_sparse_step", 1);
  const json::value *types = o.if_contains("layer_types"), *sparse = o.if_contains("moe_layers"),
                    *layers = o.if_contains("num_hidden_layers");
  if (types != nullptr && types->is_array()) {
    json::array list = types->get_array();
    for (json::value& v : list) {
      if (v == "chunked_attention") v = "sliding_attention";
    }
    o["layer_types"] = list;
  }
  if (sparse == nullptr || !sparse->is_array() || layers == nullptr || !layers->is_int64()) return;
  json::array dense;
  for (int64_t i = 0; i < std::min<int64_t>(layers->get_int64(), 1 << 12); ++i) {
    const json::array& list = sparse->get_array();
    if (std::find(list.begin(), list.end(), json::value(i)) == list.end()) dense.push_back(i);
  }
  o["mlp_only_layers"] = dense;
  o["decoder_sparse_step"] = 1;
}

base::Status ReadJson(const json::object& o, weights::Config& c) {
  if (c.experts.count == 0)
    return base::Error{base::Code::kUnsupported, "llama4 without experts is not implemented"};
  const base::Status status = ReadUnrotated(o, c);
  if (!status || base::JsonGiven(o, "layer_types") != nullptr) return status;
  for (size_t i = 0; i < c.layer_types.size(); ++i) {
    c.layer_types[i] =
        c.unrotated_layers[i] ? weights::LayerType::kFull : weights::LayerType::kSliding;
  }
  return {};
}

// What a file doesn't say are llama.cpp's constants: the published models'.
void ReadKeys(weights::GgufReader& r, weights::Config& c) {
  SkipEvery(c.sliding_window > 0 ? 4 : c.num_hidden_layers + 1, c);
  c.options["use_qk_norm"] = c.experts.count != 128;
  c.experts.normalise = false;
  c.experts.shared_intermediate_size = c.experts.intermediate_size;
  const int64_t step = r.Int("interleave_moe_layer_step", 1);
  if (step < 1) r.Fail(base::Code::kCorrupt, "interleave_moe_layer_step", "must be at least 1");
  for (size_t i = 0; i < c.sparse_layers.size() && step > 0; ++i)
    c.sparse_layers[i] = static_cast<int64_t>(i + 1) % step == 0;
}

// Safetensors' matrices of experts stand transposed, gate beside up.
base::Status MakeTensors(const weights::Config& c, int64_t, weights::LayerTensors& t) {
  const int64_t e = c.experts.count, n = c.experts.intermediate_size, k = c.hidden_size;
  const std::string p = "mlp.experts.", both = p + "gate_up_proj.weight";
  if (!t.Has(both)) return {};
  const weights::LayerTensors::Shape steps = {2 * n * k, 1, 2 * n};
  const base::Status status = t.View(
      both, {e, k, 2 * n},
      {{p + "gate_proj.weight", 0, {e, n, k}, steps}, {p + "up_proj.weight", n, {e, n, k}, steps}});
  if (!status) return status;
  return t.View(p + "down_proj.weight", {e, n, k},
                {{p + "down_proj.weight", 0, {e, k, n}, {n * k, 1, k}}});
}

weights::Family Llama4() {
  return {.name = "llama4",
          .architecture = "Llama4ForCausalLM",
          .model_type = "llama4_text",
          .wider_architecture = "Llama4ForConditionalGeneration",
          .wider_type = "llama4",
          .gguf = "llama4",
          .heads = 40,
          .vocab_size = 202048,
          .kv_heads = 8,
          .head_dim = 128,
          .max_position_embeddings = 131072,
          .eps = 1e-5,
          .takes_attention_bias = true,
          .rope_theta = 500000,
          .interleaved = true,
          .windows = weights::Windows::kPeriod,
          .window_period = 4,
          .sliding_window = 8192,
          .gguf_sliding_window = 8192,
          .experts = weights::ExpertOptions{.defaults = {.count = 16,
                                                         .per_token = 1,
                                                         .intermediate_size = 8192,
                                                         .shared_intermediate_size = 8192,
                                                         .normalise = false,
                                                         .shared_gate = false,
                                                         .sigmoid = true}},
          .options = {{.json = "no_rope_layer_interval", .fallback = 4, .least = 1},
                      {.json = "attn_temperature_tuning", .fallback = 1},
                      {.json = "floor_scale", .fallback = 8192, .least = 1},
                      {.json = "attn_scale", .fallback = 0.1},
                      {.json = "use_qk_norm", .fallback = 1}},
          .known = {"no_rope_layers", "moe_layers", "interleave_moe_layer_step"},
          .rewrite_json = Rewrite,
          .read_json = ReadJson,
          .read_gguf = ReadKeys,
          .renames = {{".feed_forward.", ".mlp."}, {".mlp.router.", ".mlp.gate."}},
          .make_tensors = MakeTensors};
}

}  // namespace

VLLM_MODEL_FAMILY(llama4, BuildLlama4, Llama4())

}  // namespace vllm::models
