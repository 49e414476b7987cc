// Laguna: the layers of Qwen 3 with a gate on attention's output (the softplus of a projection, a
// number a head or a value), as many heads as each layer says, a rope for each kind of layer, and
// experts chosen by sigmoid and a bias.
#include <cmath>

#include "base/json.h"
#include "base/strings.h"
#include "vllm/models/parts.h"
#include "vllm/weights/gguf_reader.h"
#include "vllm/weights/virtual_tensors.h"

namespace vllm::models {
namespace {

using base::Code;
using base::Error;
using vt::ir::Builder;
using vt::ir::ValueId;

// A gate a value, by another name where GGUF says it by the tensor's rows alone.
constexpr const char* kWideGate = "self_attn.wide_g_proj";

ValueId Attention(Builder& b, const weights::Config& c, int64_t layer, const std::string& p,
                  const vt::ir::RopeAttrs& rope, ValueId x) {
  const int64_t hd = c.head_dim, heads = c.HeadsOf(layer);
  const auto project = [&](const char* name, int64_t count) {
    return b.Heads(b.Linear(x, p + name, count * hd, c.attention_bias), count, hd);
  };
  const auto rotated = [&](ValueId v, const char* norm) {
    return b.Rope(b.RmsNorm(v, p + norm, c.rms_norm_eps), rope);
  };
  const ValueId q = rotated(project("self_attn.q_proj", heads), "self_attn.q_norm.weight");
  const ValueId k = rotated(project("self_attn.k_proj", c.num_kv_heads), "self_attn.k_norm.weight");
  const ValueId v = project("self_attn.v_proj", c.num_kv_heads);
  const ValueId a = b.Attention(q, k, v,
                                {.heads = heads,
                                 .kv_heads = c.num_kv_heads,
                                 .head_dim = hd,
                                 .scale = 1 / std::sqrt(static_cast<float>(hd)),
                                 .window = c.WindowOf(layer)},
                                p + "self_attn");
  const bool wide = c.from_gguf ? b.Has(p + kWideGate + ".weight") : c.Option("wide_gate") != 0;
  const ValueId gate =
      b.Act(b.Linear(x, p + (wide ? kWideGate : "self_attn.g_proj"), wide ? heads * hd : heads),
            vt::ir::Activation::kSoftplus);
  const ValueId gated =
      wide
          ? b.Mul(a, gate)
          : JoinHeads(b, p, b.ScaleRows(b.Heads(a, heads, hd), b.Heads(gate, heads, 1)), heads, hd);
  return b.Linear(gated, p + "self_attn.o_proj", c.hidden_size, c.attention_bias);
}

ValueId BuildLaguna(Builder& b, const BuildContext& context) {
  const weights::Config& c = context.config;
  const vt::ir::RopeAttrs full = RopeOf(b, context, c.rope);
  const vt::ir::RopeAttrs sliding = RopeOf(b, context, c.rope_local);
  const auto norm = [&](ValueId v, const std::string& name) {
    return b.RmsNorm(v, name + ".weight", c.rms_norm_eps);
  };
  ValueId x = b.Embed("model.embed_tokens.weight", c.vocab_size, c.hidden_size);
  for (int64_t layer = 0; layer < c.num_hidden_layers; ++layer) {
    const std::string p = fmt::format("model.layers.{}.", layer);
    x = b.Add(x, Attention(b, c, layer, p, c.WindowOf(layer) > 0 ? sliding : full,
                           norm(x, p + "input_layernorm")));
    x = b.Add(x, Mlp(b, c, layer, p + "mlp.", norm(x, p + "post_attention_layernorm")));
  }
  return LmHead(b, c, norm(b.OutputOnly(x), "model.norm"));
}

// What `key` says of each layer: nothing, or a list of as many values.
base::Result<boost::json::array> ListOf(const boost::json::object& o, std::string_view key,
                                        int64_t layers) {
  const boost::json::value* v = base::JsonGiven(o, key);
  if (v == nullptr) return boost::json::array();
  if (!v->is_array() || static_cast<int64_t>(v->get_array().size()) != layers)
    return Error{Code::kCorrupt, fmt::format("field '{}' must list every layer", key)};
  return v->get_array();
}

base::Status ReadGate(const boost::json::object& o, weights::Config& c) {
  const boost::json::value* given = base::JsonGiven(o, "gating");
  boost::json::array gates = {given == nullptr || *given == true ? "per-head" : *given};
  const auto list = ListOf(o, "gating_types", c.num_hidden_layers);
  if (!list) return list.error();
  gates.insert(gates.end(), list->begin(), list->end());
  for (const boost::json::value& gate : gates) {
    const std::string name = gate.is_string() ? std::string(gate.get_string()) : "";
    const bool wide = name == "per-element" || name == "per_element";
    if (!wide && name != "per-head" && name != "per_head")
      return Error{Code::kUnsupported, "gating is neither true nor per-head nor per-element"};
    if (c.options.contains("wide_gate") && (c.Option("wide_gate") != 0) != wide)
      return Error{Code::kUnsupported, "gating_types that differ from gating are not implemented"};
    c.options["wide_gate"] = wide ? 1 : 0;
  }
  return {};
}

base::Status ReadJson(const boost::json::object& o, weights::Config& c) {
  c.experts.scale = c.Option("moe_routed_scaling_factor");
  c.experts.softcap = c.Option("moe_router_logit_softcapping");
  const auto heads = ListOf(o, "num_attention_heads_per_layer", c.num_hidden_layers);
  if (!heads) return heads.error();
  for (const boost::json::value& v : *heads)
    c.layer_heads.push_back(v.is_int64() ? v.get_int64() : 0);
  const auto kinds = ListOf(o, "mlp_layer_types", c.num_hidden_layers);
  if (!kinds) return kinds.error();
  c.sparse_layers[0] = false;
  for (size_t i = 0; i < kinds->size(); ++i) {
    const boost::json::value& kind = (*kinds)[i];
    if (kind != "dense" && kind != "sparse")
      return Error{Code::kUnsupported, fmt::format("mlp_layer_types[{}] is not implemented", i)};
    c.sparse_layers[i] = kind == "sparse";
  }
  // A rope that is given turns whole heads, unless it says otherwise.
  const boost::json::value* ropes = base::JsonGiven(o, "rope_parameters");
  for (const auto& [key, rope] :
       {std::pair{"full_attention", &c.rope}, {"sliding_attention", &c.rope_local}}) {
    const boost::json::value* one =
        ropes == nullptr ? nullptr : base::JsonGiven(ropes->as_object(), key);
    const bool said = one != nullptr && one->as_object().contains("partial_rotary_factor");
    if (!said) rope->partial_rotary_factor = ropes == nullptr && rope == &c.rope ? 0.5 : 1;
  }
  return ReadGate(o, c);
}

// llama.cpp's graph knows which layers slide where a file doesn't list them: all but each fourth,
// from the first on.
void ReadGguf(weights::GgufReader& r, weights::Config& c) {
  if (c.sliding_window == 0 || r.Has("attention.sliding_window_pattern")) return;
  for (size_t i = 0; i < c.layer_types.size(); ++i)
    c.layer_types[i] = i % 4 == 0 ? weights::LayerType::kFull : weights::LayerType::kSliding;
}

base::Status NameWideGate(const weights::Config& c, int64_t layer, weights::LayerTensors& t) {
  const int64_t heads = c.HeadsOf(layer);
  const auto gate = t.tensors().find(t.prefix() + "self_attn.g_proj.weight");
  if (gate == t.tensors().end() || gate->second.shape.empty() || gate->second.shape[0] == heads)
    return {};
  return t.Split("self_attn.g_proj.weight", 1,
                 {{std::string(kWideGate) + ".weight", heads * c.head_dim}}, {c.hidden_size});
}

weights::Family Laguna() {
  return {.name = "laguna",
          .architecture = "LagunaForCausalLM",
          .model_type = "laguna",
          .gguf = "laguna",
          .heads = 48,
          .vocab_size = 100352,
          .kv_heads = 8,
          .head_dim = 128,
          .max_position_embeddings = 131072,
          .takes_attention_bias = true,
          .rope_theta = 500000,
          .own_local_rope = true,
          .windows = weights::Windows::kPeriod,
          .window_period = 1,  // none, where layer_types is missing
          .sliding_window = 512,
          .experts = weights::ExpertOptions{.defaults = {.count = 256,
                                                         .per_token = 8,
                                                         .intermediate_size = 512,
                                                         .shared_intermediate_size = 512,
                                                         .shared_gate = false,
                                                         .sigmoid = true,
                                                         .bias = true}},
          .options = {{"moe_routed_scaling_factor", "", 1, 1e-6},
                      {"moe_router_logit_softcapping", "", 0}},
          .known = {"mlp_layer_types", "attention.head_count"},
          .read_json = ReadJson,
          .read_gguf = ReadGguf,
          .names = {{"attn_gate", "self_attn.g_proj"},
                    {"exp_probs_b.bias", "mlp.gate.e_score_correction_bias"}},
          .renames = {{".mlp.shared_experts.", ".mlp.shared_expert."},
                      {".mlp.experts.e_score", ".mlp.gate.e_score"}},
          .make_tensors = NameWideGate};
}

}  // namespace

VLLM_MODEL_FAMILY(laguna, BuildLaguna, Laguna())

}  // namespace vllm::models
