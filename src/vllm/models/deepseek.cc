// DeepSeek-V2, V2-Lite, V3 and R1 (arXiv 2405.04434, 2412.19437): latent attention, and experts in
// groups beside a shared one.
//
// The cache holds one vector a token, from which each head's key and value come by a matrix of its
// own. Both are applied on the other side, to queries and to what attention gives, so that a step
// never expands the cache.
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
using weights::Config;

struct Sizes {
  int64_t heads, q_rank, rank, nope, rope, value;
  explicit Sizes(const Config& c)
      : heads(c.num_heads),
        q_rank(c.IntOption("q_lora_rank")),
        rank(c.IntOption("kv_lora_rank")),
        nope(c.IntOption("qk_nope_head_dim")),
        rope(c.IntOption("qk_rope_head_dim")),
        value(c.IntOption("v_head_dim")) {}
};

// YaRN's share in the scale of scores.
float ScaleOf(const Config& c, const Sizes& s) {
  double scale = 1 / std::sqrt(static_cast<double>(s.nope + s.rope));
  if (c.rope.type == "yarn" && c.rope.mscale_all_dim > 0 && c.rope.factor > 1) {
    const double m = 0.1 * c.rope.mscale_all_dim * std::log(c.rope.factor) + 1;
    scale *= m * m;
  }
  return static_cast<float>(scale);
}

ValueId LatentAttention(Builder& b, const Config& c, const vt::ir::RopeAttrs& rope,
                        const std::string& p, ValueId h) {
  const Sizes s(c);
  const bool bias = c.attention_bias;
  const auto norm = [&](ValueId v, const char* name) {
    return b.RmsNorm(v, p + name + ".weight", c.rms_norm_eps);
  };
  const int64_t dim = s.nope + s.rope;
  ValueId q = vt::ir::kNone;
  if (s.q_rank > 0) {
    q = norm(b.Linear(h, p + "q_a_proj", s.q_rank, bias), "q_a_layernorm");
    q = b.Linear(q, p + "q_b_proj", s.heads * dim);
  } else {
    q = b.Linear(h, p + "q_proj", s.heads * dim);
  }
  q = b.Heads(q, s.heads, dim);
  const ValueId kv =
      b.Heads(b.Linear(h, p + "kv_a_proj_with_mqa", s.rank + s.rope, bias), 1, s.rank + s.rope);
  const ValueId latent = b.Concat(norm(b.Slice(kv, 0, s.rank), "kv_a_layernorm"),
                                  b.Rope(b.Slice(kv, s.rank, s.rope), rope));
  const ValueId query = b.Concat(b.HeadLinear(b.Slice(q, 0, s.nope), p + "k_b_proj", s.rank),
                                 b.Rope(b.Slice(q, s.nope, s.rope), rope));
  const ValueId a = b.LatentAttention(query, latent,
                                      {.heads = s.heads,
                                       .kv_heads = 1,
                                       .head_dim = s.rank + s.rope,
                                       .scale = ScaleOf(c, s),
                                       .v_dim = s.rank},
                                      p.substr(0, p.size() - 1));
  const ValueId y = b.HeadLinear(b.Heads(a, s.heads, s.rank), p + "v_b_proj", s.value);
  return b.Linear(JoinHeads(b, p, y, s.heads, s.value), p + "o_proj", c.hidden_size, bias);
}

ValueId BuildDeepSeek(Builder& b, const BuildContext& context) {
  const Config& c = context.config;
  vt::ir::RopeAttrs rope = RopeOf(b, context, c.rope);
  rope.interleaved = c.Option("rope_interleave") != 0;
  const auto norm = [&](ValueId v, const std::string& name) {
    return b.RmsNorm(v, name + ".weight", c.rms_norm_eps);
  };
  ValueId x = b.Embed("model.embed_tokens.weight", c.vocab_size, c.hidden_size);
  for (int64_t layer = 0; layer < c.num_hidden_layers; ++layer) {
    const std::string p = fmt::format("model.layers.{}.", layer);
    const ValueId h = norm(x, p + "input_layernorm");
    x = b.Add(x, LatentAttention(b, c, rope, p + "self_attn.", h));
    x = b.Add(x, Mlp(b, c, layer, p + "mlp.", norm(x, p + "post_attention_layernorm")));
  }
  return LmHead(b, c, norm(b.OutputOnly(x), "model.norm"));
}

// kv_b_proj [H (nope + value), rank] has a head's rows for keys, then those for values. Keys' are
// needed transposed. GGUF's newer files have both as they are needed.
base::Status SplitKvB(const Config& c, int64_t, weights::LayerTensors& t) {
  const Sizes s(c);
  const std::string p = "self_attn.", key = p + "k_b_proj.weight", value = p + "v_b_proj.weight";
  const int64_t head = (s.nope + s.value) * s.rank;
  return t.View(p + "kv_b_proj.weight", {s.heads * (s.nope + s.value), s.rank},
                {{key, 0, {s.heads, s.rank, s.nope}, {head, 1, s.rank}},
                 {value, s.nope * s.rank, {s.heads, s.value, s.rank}, {head, s.rank, 1}}});
}

base::Status ReadOptions(const boost::json::object& o, Config& c) {
  const bool v3 = c.family == "deepseek_v3";
  const auto method = base::JsonString(o, "topk_method", v3 ? "noaux_tc" : "greedy");
  if (!method) return method.error();
  if (v3 ? *method != "noaux_tc" : *method != "greedy" && *method != "group_limited_greedy") {
    return Error{Code::kUnsupported, fmt::format("topk_method '{}' is not implemented for {}",
                                                 base::Printable(*method), c.family)};
  }
  if (*method == "greedy") c.experts.groups = c.experts.top_groups = 1;
  if (!v3 && c.experts.normalise) {
    return Error{Code::kUnsupported,
                 fmt::format("norm_topk_prob = true is not implemented for {}", c.family)};
  }
  const auto every = base::JsonInt(o, "moe_layer_freq", 1);
  if (!every) return every.error();
  if (*every < 1)
    return Error{Code::kCorrupt, fmt::format("moe_layer_freq is {}: it must be 1 or more", *every)};
  for (int64_t layer = 0; layer < c.num_hidden_layers; ++layer) {
    if (layer % *every != 0) c.sparse_layers[static_cast<size_t>(layer)] = false;
  }
  c.head_dim = c.IntOption("qk_rope_head_dim");  // of what is rotated
  return {};
}

// key_length and value_length are the cache's vector's; older files have a head's there.
void ReadKeys(weights::GgufReader& r, Config& c) {
  const bool absorbed = r.Has("attention.key_length_mla");
  const int64_t rope = r.Int("rope.dimension_count");
  const int64_t key = r.Int(absorbed ? "attention.key_length_mla" : "attention.key_length");
  const int64_t value = r.Int(absorbed ? "attention.value_length_mla" : "attention.value_length");
  if (r.error()) return;
  if (key <= rope || value < 1 || key > 1 << 16 || value > 1 << 16) {
    r.Fail(Code::kCorrupt, "attention.key_length",
           fmt::format("is {}, with {} of them rotated and values of {}", key, rope, value));
    return;
  }
  c.options["qk_rope_head_dim"] = static_cast<double>(rope);
  c.options["qk_nope_head_dim"] = static_cast<double>(key - rope);
  c.options["v_head_dim"] = static_cast<double>(value);
  c.num_kv_heads = c.num_heads;
  c.head_dim = rope;
  c.rope.partial_rotary_factor = 1;
  c.rope.mscale = c.rope.mscale_all_dim = 10 * r.Number("rope.scaling.yarn_log_multiplier", 0);
}

weights::Family DeepSeekV3() {
  return {.name = "deepseek_v3",
          .architecture = "DeepseekV3ForCausalLM",
          .model_type = "deepseek_v3",
          .max_position_embeddings = 4096,
          .takes_attention_bias = true,
          .interleaved = true,
          .experts = weights::ExpertOptions{.defaults = {.count = 256,
                                                         .per_token = 8,
                                                         .intermediate_size = 2048,
                                                         .shared_intermediate_size = 2048,
                                                         .shared_gate = false,
                                                         .sigmoid = true,
                                                         .bias = true,
                                                         .scale = 2.5},
                                            .deepseek = true},
          .options = {{"q_lora_rank", "attention.q_lora_rank", 0, 0, 1 << 16},
                      {"kv_lora_rank", "attention.kv_lora_rank", 512, 1, 1 << 16},
                      {"qk_nope_head_dim", "", 128, 1, 1 << 16},
                      {"qk_rope_head_dim", "", 64, 2, 1 << 16},
                      {"v_head_dim", "", 128, 1, 1 << 16},
                      {"rope_interleave", "", 1, 0, 1}},
          .known = {"qk_head_dim", "head_dim", "scoring_func", "topk_method", "moe_layer_freq",
                    "n_group", "topk_group", "attention.key_length", "attention.value_length",
                    "attention.key_length_mla", "attention.value_length_mla",
                    "rope.scaling.yarn_log_multiplier"},
          .read_json = ReadOptions,
          .read_gguf = ReadKeys,
          .names = {{"attn_q_a", "self_attn.q_a_proj"},
                    {"attn_q_a_norm", "self_attn.q_a_layernorm"},
                    {"attn_q_b", "self_attn.q_b_proj"},
                    {"attn_kv_a_mqa", "self_attn.kv_a_proj_with_mqa"},
                    {"attn_kv_a_norm", "self_attn.kv_a_layernorm"},
                    {"attn_kv_b", "self_attn.kv_b_proj"},
                    {"attn_k_b", "self_attn.k_b_proj"},
                    {"attn_v_b", "self_attn.v_b_proj"},
                    {"exp_probs_b.bias", "mlp.gate.e_score_correction_bias"}},
          .renames = {{".mlp.shared_experts.", ".mlp.shared_expert."}},
          .make_tensors = SplitKvB};
}

weights::Family DeepSeekV2() {
  weights::Family f = DeepSeekV3();
  f.name = f.model_type = "deepseek_v2";
  f.architecture = "DeepseekV2ForCausalLM";
  f.gguf = "deepseek2";  // V3's too: expert_gating_func tells
  f.max_position_embeddings = 2048;
  f.experts->defaults = {.count = 64,
                         .intermediate_size = 1407,
                         .shared_intermediate_size = 2 * 1407,
                         .normalise = false,
                         .shared_gate = false};
  return f;
}

}  // namespace

VLLM_MODEL_FAMILY(deepseek, BuildDeepSeek, DeepSeekV2(), DeepSeekV3())

}  // namespace vllm::models
