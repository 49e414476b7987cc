#include "vllm/models/deepseek_v4_files.h"

#include <boost/json/array.hpp>
#include <boost/json/serialize.hpp>

#include "base/json.h"
#include "base/strings.h"
#include "vllm/weights/virtual_tensors.h"

namespace vllm::models {
namespace {

namespace json = boost::json;
using base::Code;
using base::Error;
using base::Status;
using weights::Config;

constexpr std::string_view kSliding = "sliding_attention", kIndexed = "compressed_sparse_attention",
                           kHeavy = "heavily_compressed_attention";

std::string_view TextOf(const json::value& v) {
  return v.is_string() ? std::string_view(v.get_string()) : std::string_view();
}

// One layer's option.
std::string Key(std::string_view name, int64_t layer) { return fmt::format("{}.{}", name, layer); }

// The settings of a rotation, whose share of a head's values stands beside it.
json::object Rotation(const json::object& from, json::object& o, std::string_view theta,
                      double fallback) {
  json::object out = from;
  if (const json::value* share = out.if_contains("partial_rotary_factor")) {
    o["partial_rotary_factor"] = *share;
    out.erase("partial_rotary_factor");
  }
  if (!out.contains("rope_theta"))
    out["rope_theta"] = o.contains(theta) ? o[theta] : json::value(fallback);
  return out;
}

// Layers with entries rotate by settings of their own, which the common words have for full layers;
// those without are sliding ones.
void RewriteRope(json::object& o) {
  json::object settings;
  for (const std::string_view key : {"rope_scaling", "rope_parameters"}) {
    if (const json::value* v = base::JsonGiven(o, key); v != nullptr && v->is_object()) {
      for (const auto& [name, value] : v->get_object()) settings[name] = value;
    }
    o.erase(key);
  }
  const json::value *main = settings.if_contains("main"), *own = settings.if_contains("compress");
  const bool nested = main != nullptr && main->is_object() && own != nullptr && own->is_object();
  json::object entries = nested ? own->get_object() : settings;
  if (!nested) {
    entries.erase("rope_theta");
    const json::value* type = base::JsonGiven(entries, "rope_type");
    if (type == nullptr) type = base::JsonGiven(entries, "type");
    const bool yarn = type != nullptr && type->is_string() && type->get_string() == "yarn";
    if (yarn && !entries.contains("attention_factor")) entries["attention_factor"] = 1.0;
  }
  entries = Rotation(entries, o, "compress_rope_theta", 160000);
  const json::object sliding =
      Rotation(nested ? main->get_object() : json::object(), o, "rope_theta", 10000);
  o["rope_parameters"] = {{"full_attention", entries}, {"sliding_attention", sliding}};
  const json::value* rotated = base::JsonGiven(o, "qk_rope_head_dim");
  const json::value* head = base::JsonGiven(o, "head_dim");
  if (!o.contains("partial_rotary_factor") && rotated != nullptr && rotated->is_int64()) {
    const int64_t dim = head != nullptr && head->is_int64() ? head->get_int64() : 512;
    o["partial_rotary_factor"] =
        static_cast<double>(rotated->get_int64()) / static_cast<double>(dim > 0 ? dim : 1);
  }
}

// attention_kinds: a name a layer; layer_types in the common words.
void RewriteLayers(json::object& o) {
  json::array kinds, common;
  const json::value* named = base::JsonGiven(o, "layer_types");
  const json::value* ratios = base::JsonGiven(o, "compress_ratios");
  const json::value* count = base::JsonGiven(o, "num_hidden_layers");
  const int64_t layers = count != nullptr && count->is_int64() ? count->get_int64() : 0;
  if (layers < 0 || layers > 1 << 12) return;  // refused by name later
  for (size_t i = 0; i < static_cast<size_t>(layers); ++i) {
    json::value kind = json::string(i < 2 || i % 2 == 0 ? kHeavy : kIndexed);
    if (named != nullptr) {
      const bool known = named->is_array() && i < named->get_array().size();
      kind = known ? named->get_array()[i] : json::value();
    } else if (ratios != nullptr) {
      const bool known = ratios->is_array() && i < ratios->get_array().size();
      const json::value ratio = known ? ratios->get_array()[i] : json::value(-1);
      const int64_t tokens = ratio.is_int64() ? ratio.get_int64() : -1;
      kind = tokens == 0     ? json::value(kSliding)
             : tokens == 4   ? json::value(kIndexed)
             : tokens == 128 ? json::value(kHeavy)
                             : ratio;
    }
    common.push_back(TextOf(kind) == kSliding ? json::value(kSliding)
                                              : json::value("full_attention"));
    kinds.push_back(std::move(kind));
  }
  o["attention_kinds"] = std::move(kinds);
  o["layer_types"] = std::move(common);
}

void Rewrite(json::object& o) {
  RewriteRope(o);
  RewriteLayers(o);
  o["first_k_dense_replace"] = 0;
  if (!o.contains("num_key_value_heads")) o["num_key_value_heads"] = 1;
}

Status ReadLayers(const json::object& o, Config& c) {
  const auto refuse = [&](const std::string& field, std::string_view value) -> Status {
    return Error{Code::kUnsupported, fmt::format("{} = {} is not implemented for {}", field,
                                                 base::Printable(value), c.family)};
  };
  // compress_rates by kind, or a field for each.
  std::map<std::string_view, int64_t> rates = {{kSliding, 0}, {kIndexed, 4}, {kHeavy, 128}};
  const json::value* own = base::JsonGiven(o, "compress_rates");
  for (const auto& [kind, field] :
       {std::pair{kIndexed, "compress_rate_csa"}, {kHeavy, "compress_rate_hca"}}) {
    auto rate = base::JsonInt(o, field, rates[kind]);
    if (rate && own != nullptr && own->is_object())
      rate = base::JsonInt(own->get_object(), kind, *rate);
    if (!rate) return rate.error();
    if (*rate < 1 || *rate > 1 << 16) return refuse(std::string(field), fmt::format("{}", *rate));
    rates[kind] = *rate;
  }
  const json::value* named = base::JsonGiven(o, "attention_kinds");
  if (named == nullptr || !named->is_array() ||
      static_cast<int64_t>(named->get_array().size()) != c.num_hidden_layers) {
    return Error{Code::kCorrupt, "num_hidden_layers must be an integer"};
  }
  const json::array& kinds = named->get_array();
  const json::value* mlps = base::JsonGiven(o, "mlp_layer_types");
  const auto hashed = base::JsonInt(o, "num_hash_layers", 3);
  if (!hashed) return hashed.error();
  for (int64_t layer = 0; layer < c.num_hidden_layers; ++layer) {
    const auto at = static_cast<size_t>(layer);
    const std::string_view kind = TextOf(kinds[at]);
    const auto rate = rates.find(kind);
    if (rate == rates.end()) return refuse(Key("layer_types", layer), json::serialize(kinds[at]));
    bool hash = layer < *hashed;
    if (mlps != nullptr) {
      const bool known = mlps->is_array() && at < mlps->get_array().size();
      const json::value mlp = known ? mlps->get_array()[at] : json::value();
      if (TextOf(mlp) != "hash_moe" && TextOf(mlp) != "moe")
        return refuse(Key("mlp_layer_types", layer), json::serialize(mlp));
      hash = TextOf(mlp) == "hash_moe";
    }
    c.options[Key("ratio", layer)] = static_cast<double>(rate->second);
    c.options[Key("indexed", layer)] = kind == kIndexed ? 1 : 0;
    c.options[Key("hashed", layer)] = hash ? 1 : 0;
  }
  if (c.num_kv_heads != 1) return refuse("num_key_value_heads", fmt::format("{}", c.num_kv_heads));
  if (!c.experts.normalise) return refuse("norm_topk_prob", "false");
  const int64_t groups = c.IntOption("o_groups");
  if (c.num_heads % groups != 0) return refuse("o_groups", fmt::format("{}", groups));
  return {};
}

// Matrices of groups stand in one.
Status MakeTensors(const Config& c, int64_t, weights::LayerTensors& t) {
  const int64_t groups = c.IntOption("o_groups"), rank = c.IntOption("o_lora_rank"),
                columns = c.num_heads * c.head_dim / groups;
  t.Reshape("self_attn.o_a_proj.weight", {groups * rank, columns}, {groups, rank, columns});
  return {};
}

}  // namespace

DeepSeekV4Layer LayerOf(const Config& c, int64_t layer) {
  return {.ratio = c.IntOption(Key("ratio", layer)),
          .indexed = c.Option(Key("indexed", layer)) != 0,
          .hashed = c.Option(Key("hashed", layer)) != 0};
}

weights::Family DeepSeekV4() {
  return {.name = "deepseek_v4",
          .architecture = "DeepseekV4ForCausalLM",
          .model_type = "deepseek_v4",
          .kv_heads = 1,
          .head_dim = 512,
          .dense = false,
          .max_position_embeddings = 1 << 20,
          .partial_rotary_factor = 64.0 / 512,
          .own_local_rope = true,
          .interleaved = true,
          .windows = weights::Windows::kFromLayer,
          .sliding_window = 128,
          .experts = weights::ExpertOptions{.defaults = {.count = 256,
                                                         .per_token = 6,
                                                         .intermediate_size = 2048,
                                                         .shared_intermediate_size = 2048,
                                                         .shared_gate = false,
                                                         .root = true,
                                                         .bias = true,
                                                         .scale = 1.5},
                                            .deepseek = true},
          .options = {{"q_lora_rank", "", 1024, 1, 1 << 16},
                      {"o_groups", "", 8, 1, 1 << 10},
                      {"o_lora_rank", "", 1024, 1, 1 << 16},
                      {"index_n_heads", "", 64, 1, 1 << 10},
                      {"index_head_dim", "", 128, 1, 1 << 12},
                      {"index_topk", "", 512, 1, 1 << 12},
                      {"hc_mult", "", 4, 1, 16},
                      {"hc_sinkhorn_iters", "", 20, 1, 1000},
                      {"hc_eps", "", 1e-6, 0, 1},
                      {"swiglu_limit", "", 10, 1e-6}},
          .known = {"compress_rope_theta", "compress_rates", "compress_ratios", "compress_rate_csa",
                    "compress_rate_hca", "mlp_layer_types", "num_hash_layers", "qk_rope_head_dim",
                    "scoring_func", "expert_dtype", "first_k_dense_replace", "topk_method",
                    "attention_kinds"},
          .rewrite_json = Rewrite,
          .read_json = ReadLayers,
          .renames = {{"^embed.weight", "model.embed_tokens.weight"},
                      {"^head.weight", "lm_head.weight"},
                      {"^hc_head_", "model.hc_head.hc_"},
                      {".attn.", ".self_attn."},
                      {".ffn.", ".mlp."},
                      {".attn_norm.", ".input_layernorm."},
                      {".ffn_norm.", ".post_attention_layernorm."},
                      {".hc_attn_", ".attn_hc."},
                      {".hc_ffn_", ".ffn_hc."},
                      {".attn_sink", ".sinks"},
                      {".indexer.compressor.", ".compressor.indexer."},
                      {".self_attn.indexer.weights_proj.",
                       ".self_attn.compressor.indexer.scorer.weights_proj."},
                      {".self_attn.indexer.wq_b.", ".self_attn.compressor.indexer.q_b_proj."},
                      {".norm.", ".kv_norm."},
                      {"model.kv_norm.", "model.norm."},
                      {".ape", ".position_bias"},
                      {".wq_a.", ".q_a_proj."},
                      {".wq_b.", ".q_b_proj."},
                      {".wkv.", ".kv_proj."},
                      {".wgate.", ".gate_proj."},
                      {".wo_a.", ".o_a_proj."},
                      {".wo_b.", ".o_b_proj."},
                      {".q_norm.", ".q_a_norm."},
                      {".gate.bias", ".gate.e_score_correction_bias"},
                      {".w1.", ".gate_proj."},
                      {".w2.", ".down_proj."},
                      {".w3.", ".up_proj."},
                      {".shared_experts.", ".shared_expert."}},
          .make_tensors = MakeTensors};
}

}  // namespace vllm::models
