// GGUF metadata -> Config. Keys are "<architecture>.<name>". What GGUF leaves out is what its
// converter leaves out: windows alternate as the architecture says, query_pre_attn_scalar follows
// from the size of the model.
#include <algorithm>
#include <array>
#include <cmath>

#include "base/strings.h"
#include "vllm/weights/config.h"
#include "vllm/weights/config_check.h"
#include "vllm/weights/config_hybrid.h"
#include "vllm/weights/config_rope.h"
#include "vllm/weights/gguf.h"

namespace vllm::weights {
namespace {

using base::Code;
using base::Error;
using base::Printable;
using base::Result;
using base::Status;

struct Architecture {
  std::string_view gguf, family;
};
// "llama" with experts is mixtral.
constexpr std::array<Architecture, 9> kArchitectures = {{{"llama", "llama"},
                                                         {"qwen2", "qwen2"},
                                                         {"qwen3", "qwen3"},
                                                         {"qwen3moe", "qwen3_moe"},
                                                         {"qwen3next", "qwen3_next"},
                                                         {"qwen35", "qwen3_5"},
                                                         {"qwen35moe", "qwen3_5_moe"},
                                                         {"gemma2", "gemma2"},
                                                         {"gemma3", "gemma3"}}};

// Of families with experts alone.
constexpr std::array<std::string_view, 7> kExpertKeys = {"expert_count",
                                                         "expert_used_count",
                                                         "expert_feed_forward_length",
                                                         "expert_shared_feed_forward_length",
                                                         "expert_gating_func",
                                                         "expert_weights_norm",
                                                         "expert_weights_scale"};

// Keys that sound like mathematics and are read below, or don't matter.
constexpr std::array<std::string_view, 21> kKnownKeys = {"attention.layer_norm_rms_epsilon",
                                                         "attention.sliding_window",
                                                         "attention.sliding_window_pattern",
                                                         "attention.scale",
                                                         "rope.dimension_count",
                                                         "rope.freq_base",
                                                         "rope.freq_base_swa",
                                                         "rope.scale_linear",
                                                         "rope.scaling.type",
                                                         "rope.scaling.factor",
                                                         "rope.scaling.original_context_length",
                                                         "rope.scaling.attn_factor",
                                                         "rope.scaling.finetuned",
                                                         "rope.scaling.yarn_attn_factor",
                                                         "rope.scaling.yarn_beta_fast",
                                                         "rope.scaling.yarn_beta_slow",
                                                         "rope.dimension_count_swa",
                                                         "rope.dimension_sections",
                                                         "attn_logit_softcapping",
                                                         "final_logit_softcapping",
                                                         "interleave_moe_layer_step"};

bool SaysNothing(const GgufMetadata& m, std::string_view key) {
  const GgufValue& v = *m.Find(key);
  return std::all_of(v.bytes.begin(), v.bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}

// Reads the keys of one architecture; the first error stays.
class Reader {
 public:
  Reader(const GgufMetadata& metadata, std::string_view architecture)
      : m_(metadata), prefix_(std::string(architecture) + ".") {}

  std::string Key(std::string_view name) const { return prefix_ + std::string(name); }
  bool Has(std::string_view name) const { return m_.Has(Key(name)); }

  // An integer, or an array of equal ones (a value a layer).
  int64_t Int(std::string_view name, std::optional<int64_t> fallback = std::nullopt) {
    const std::string key = Key(name);
    const GgufValue* v = m_.Find(key);
    if (v == nullptr && fallback) return *fallback;
    if (v != nullptr && v->type == GgufType::kArray) {
      const Result<std::vector<int64_t>> list = m_.Ints(key);
      if (!list) return Fail(list.error());
      if (list->empty() ||
          std::adjacent_find(list->begin(), list->end(), std::not_equal_to<>()) != list->end()) {
        return Fail({Code::kUnsupported,
                     fmt::format("metadata key '{}': layers that differ are not implemented",
                                 Printable(key))});
      }
      return list->front();
    }
    const Result<int64_t> n = m_.Int(key);
    return n ? *n : Fail(n.error());
  }
  double Number(std::string_view name, std::optional<double> fallback = std::nullopt) {
    if (fallback && !Has(name)) return *fallback;
    const Result<double> n = m_.Number(Key(name));
    return n ? *n : static_cast<double>(Fail(n.error()));
  }
  std::string String(std::string_view name, std::string_view fallback) {
    const Result<std::string_view> s = m_.String(Key(name), fallback);
    if (s) return std::string(*s);
    Fail(s.error());
    return {};
  }
  int64_t Fail(Error error) {
    if (!error_) error_ = std::move(error);
    return 0;
  }
  const std::optional<Error>& error() const { return error_; }

 private:
  const GgufMetadata& m_;
  std::string prefix_;
  std::optional<Error> error_;
};

void ReadRopeKeys(Reader& r, Config& c) {
  c.rope.theta = r.Number("rope.freq_base", 10000);
  const int64_t rotary = r.Int("rope.dimension_count", c.head_dim);
  if (rotary < 2 || rotary > c.head_dim || rotary % 2 != 0) {
    r.Fail({Code::kCorrupt, fmt::format("metadata key '{}' is {}, with heads of {}",
                                        r.Key("rope.dimension_count"), rotary, c.head_dim)});
    return;
  }
  c.rope.partial_rotary_factor = static_cast<double>(rotary) / static_cast<double>(c.head_dim);
  const std::string type = r.String("rope.scaling.type", "linear");
  const double factor = r.Number("rope.scaling.factor", r.Number("rope.scale_linear", 0));
  c.rope_local = c.rope;
  if (c.family == "gemma3") c.rope_local.theta = 10000;
  c.rope_local.theta = r.Number("rope.freq_base_swa", c.rope_local.theta);

  if (type == "yarn") {
    c.rope.type = "yarn";
    c.rope.factor = factor;
    c.rope.original_max_position_embeddings = r.Int("rope.scaling.original_context_length", 0);
    c.rope.beta_fast = r.Number("rope.scaling.yarn_beta_fast", 32);
    c.rope.beta_slow = r.Number("rope.scaling.yarn_beta_slow", 1);
    // GGUF's factor comes on top of YaRN's own 0.1 ln(s) + 1.
    const double attention =
        r.Number("rope.scaling.yarn_attn_factor", r.Number("rope.scaling.attn_factor", 1));
    if (attention != 1 && factor > 0)
      c.rope.attention_factor = attention * (0.1 * std::log(factor) + 1);
  } else if (type == "linear" && factor != 0 && factor != 1) {
    c.rope.type = "linear";
    c.rope.factor = factor;
  } else if (type != "linear" && type != "none") {
    c.rope.type = type;  // refused by name below
  }
  if (c.family != "gemma3") c.rope_local = c.rope;
  for (Rope* rope : {&c.rope, &c.rope_local}) {
    const Status status = CheckRope(r.Key("rope.scaling"), c.max_position_embeddings, *rope);
    if (!status) r.Fail(status.error());
  }
}

// Which layers slide. The key holds a period (one full layer in every n) or a bool a layer.
void ReadWindowKeys(const GgufMetadata& m, Reader& r, Config& c) {
  c.layer_types.assign(static_cast<size_t>(c.num_hidden_layers), LayerType::kFull);
  const bool gemma = c.family == "gemma2" || c.family == "gemma3";
  c.sliding_window = r.Int("attention.sliding_window", c.family == "gemma2" ? 4096 : 0);
  if (c.sliding_window == 0) return;
  const std::string key = r.Key("attention.sliding_window_pattern");
  const GgufValue* pattern = m.Find(key);
  if (pattern != nullptr && pattern->type == GgufType::kArray) {
    const Result<std::vector<int64_t>> list = m.Ints(key);
    if (!list) {
      r.Fail(list.error());
    } else if (list->size() != c.layer_types.size()) {
      r.Fail({Code::kCorrupt, fmt::format("metadata key '{}' has {} entries for {} layers", key,
                                          list->size(), c.layer_types.size())});
    } else {
      for (size_t i = 0; i < list->size(); ++i)
        c.layer_types[i] = (*list)[i] != 0 ? LayerType::kSliding : LayerType::kFull;
    }
    return;
  }
  if (!gemma && pattern == nullptr) {
    r.Fail({Code::kUnsupported, fmt::format("metadata key '{}' is not implemented for {}",
                                            r.Key("attention.sliding_window"), c.family)});
    return;
  }
  const int64_t period = r.Int("attention.sliding_window_pattern", c.family == "gemma2" ? 2 : 6);
  if (period < 1) {
    r.Fail({Code::kCorrupt,
            fmt::format("metadata key '{}' is {}: it must be at least 1", key, period)});
    return;
  }
  for (int64_t i = 0; i < c.num_hidden_layers; ++i) {
    if ((i + 1) % period != 0) c.layer_types[static_cast<size_t>(i)] = LayerType::kSliding;
  }
}

void ReadSizeKeys(const GgufMetadata& m, const GgufShapeOf& shape_of, Reader& r, Config& c) {
  c.hidden_size = r.Int("embedding_length");
  c.nextn_layers = IsHybrid(c.family) ? r.Int("nextn_predict_layers", 0) : 0;
  if (c.nextn_layers < 0 || c.nextn_layers > 64) {
    r.Fail({Code::kCorrupt, fmt::format("metadata key '{}' is {}: it must be from 0 to 64",
                                        r.Key("nextn_predict_layers"), c.nextn_layers)});
    return;
  }
  c.num_hidden_layers = r.Int("block_count");
  if (c.num_hidden_layers > c.nextn_layers) c.num_hidden_layers -= c.nextn_layers;
  // A file whose layers all have experts may lack it.
  c.intermediate_size =
      HasExperts(c.family) ? r.Int("feed_forward_length", 0) : r.Int("feed_forward_length");
  c.num_heads = r.Int("attention.head_count");
  c.num_kv_heads = r.Int("attention.head_count_kv", c.num_heads);
  c.max_position_embeddings = r.Int("context_length");
  if (r.error()) return;
  if (c.num_hidden_layers < 1 || c.num_hidden_layers > 1 << 12) {
    r.Fail({Code::kCorrupt, fmt::format("metadata key '{}' is {}: it must be from 1 to 4096",
                                        r.Key("block_count"), c.num_hidden_layers)});
    return;
  }
  if (c.num_heads < 1) {
    r.Fail({Code::kCorrupt, fmt::format("metadata key '{}' is {}: it must be at least 1",
                                        r.Key("attention.head_count"), c.num_heads)});
    return;
  }
  c.head_dim = r.Int("attention.key_length", c.hidden_size / c.num_heads);
  if (r.Int("attention.value_length", c.head_dim) != c.head_dim) {
    r.Fail({Code::kUnsupported,
            fmt::format("metadata key '{}' that differs from key_length is not implemented",
                        r.Key("attention.value_length"))});
  }
  const std::vector<int64_t> embedding = shape_of("token_embd.weight");
  const GgufValue* tokens = m.Find("tokenizer.ggml.tokens");
  if (embedding.size() == 2) {
    c.vocab_size = embedding[0];
  } else {
    c.vocab_size = r.Int(
        "vocab_size",
        tokens != nullptr ? static_cast<int64_t>(std::min<uint64_t>(tokens->count, INT64_MAX)) : 0);
  }
  c.rms_norm_eps = static_cast<float>(r.Number("attention.layer_norm_rms_epsilon"));
}

void ReadFamilyKeys(Reader& r, Config& c) {
  c.query_pre_attn_scalar = static_cast<double>(c.head_dim);
  if (c.family == "gemma2" || c.family == "gemma3") {
    c.hidden_act = "gelu_pytorch_tanh";
    const bool two = c.family == "gemma2";
    c.attn_logit_softcapping = static_cast<float>(r.Number("attn_logit_softcapping", two ? 50 : 0));
    c.final_logit_softcapping =
        static_cast<float>(r.Number("final_logit_softcapping", two ? 30 : 0));
    // The 27B models alone scale by hidden_size / heads, which GGUF doesn't say: they are known by
    // their layers.
    if (c.num_hidden_layers == (two ? 46 : 62)) {
      c.query_pre_attn_scalar =
          static_cast<double>(c.hidden_size) / static_cast<double>(c.num_heads);
    }
  }
  const double scale = r.Number("attention.scale", 0);
  if (scale > 0) c.query_pre_attn_scalar = 1 / (scale * scale);
  if (scale != 0 && c.family != "gemma2" && c.family != "gemma3") {
    r.Fail({Code::kUnsupported, fmt::format("metadata key '{}' is not implemented for {}",
                                            r.Key("attention.scale"), c.family)});
  }
}

// llama.cpp's graphs of these architectures have experts in every layer, chosen by softmax, whose
// weights sum to 1; a file that asks for something else is refused.
void ReadExpertKeys(const GgufMetadata& m, Reader& r, Config& c) {
  if (!HasExperts(c.family)) return;
  c.sparse_layers.assign(static_cast<size_t>(c.num_hidden_layers), true);
  Experts& e = c.experts;
  e.count = r.Int("expert_count");
  e.per_token = r.Int("expert_used_count");
  if (r.error()) return;
  const int64_t of_layer = e.per_token > 0 ? c.intermediate_size / e.per_token : 0;
  e.intermediate_size =
      r.Int("expert_feed_forward_length", c.family == "mixtral" ? c.intermediate_size : of_layer);
  if (c.family == "qwen3_next" || c.family == "qwen3_5_moe")
    e.shared_intermediate_size = r.Int("expert_shared_feed_forward_length", c.intermediate_size);
  for (const auto& [name, usual] : {std::pair{"expert_gating_func", 1.0},  // softmax
                                    {"expert_weights_norm", 1.0},
                                    {"expert_weights_scale", 1.0}}) {
    if (!r.Has(name)) continue;
    const Result<bool> flag = m.Bool(r.Key(name), false);
    const double value = flag ? static_cast<double>(*flag) : r.Number(name);
    if (r.error()) return;
    const bool unset = value == 0 && std::string_view(name) != "expert_weights_norm";
    if (value != usual && !unset)
      r.Fail({Code::kUnsupported, fmt::format("metadata key '{}' = {} is not implemented for {}",
                                              r.Key(name), value, c.family)});
  }
}

void ReadDeltaKeys(const GgufMetadata& m, Reader& r, Config& c) {
  if (!IsHybrid(c.family)) return;
  c.attention_gate = true;
  DeltaNet& d = c.delta;
  d.conv_width = r.Int("ssm.conv_kernel");
  d.k_dim = r.Int("ssm.state_size");
  d.k_heads = r.Int("ssm.group_count");
  d.v_heads = r.Int("ssm.time_step_rank");
  const int64_t inner = r.Int("ssm.inner_size");
  if (r.error()) return;
  if (d.v_heads < 1 || inner % d.v_heads != 0) {
    r.Fail({Code::kCorrupt,
            fmt::format("metadata key '{}' is {}, with {} {}", r.Key("ssm.time_step_rank"),
                        d.v_heads, r.Key("ssm.inner_size"), inner)});
    return;
  }
  d.v_dim = inner / d.v_heads;
  d.log_a = false;
  d.tiled = c.family != "qwen3_next";

  const std::string key = r.Key("attention.recurrent_layers");
  if (m.Has(key)) {
    const Result<std::vector<int64_t>> list = m.Ints(key);
    if (!list) {
      r.Fail(list.error());
    } else if (static_cast<int64_t>(list->size()) != c.num_hidden_layers + c.nextn_layers) {
      r.Fail({Code::kCorrupt, fmt::format("metadata key '{}' has {} entries for {} layers", key,
                                          list->size(), c.num_hidden_layers + c.nextn_layers)});
    } else {
      for (size_t i = 0; i < c.layer_types.size(); ++i)
        c.layer_types[i] = (*list)[i] != 0 ? LayerType::kLinear : LayerType::kFull;
    }
    return;
  }
  const int64_t interval = r.Int("full_attention_interval", 4);
  if (interval < 1) {
    r.Fail({Code::kCorrupt, fmt::format("metadata key '{}' is {}: it must be at least 1",
                                        r.Key("full_attention_interval"), interval)});
    return;
  }
  for (int64_t i = 0; i < c.num_hidden_layers; ++i) {
    if ((i + 1) % interval != 0) c.layer_types[static_cast<size_t>(i)] = LayerType::kLinear;
  }
}

void ReadTokenKeys(const GgufMetadata& m, Reader& r, Config& c) {
  for (const std::string_view name : {"bos", "eos", "eot", "eom"}) {
    const std::string key = fmt::format("tokenizer.ggml.{}_token_id", name);
    if (!m.Has(key)) continue;
    const Result<int64_t> id = m.Int(key);
    if (!id) {
      r.Fail(id.error());
      continue;
    }
    if (*id < 0 || *id > INT32_MAX) continue;  // 2^32 - 1 and -1: none
    const auto n = static_cast<int32_t>(*id);
    if (name == "bos") {
      c.bos_token_id = n;
    } else if (std::find(c.eos_token_ids.begin(), c.eos_token_ids.end(), n) ==
               c.eos_token_ids.end()) {
      c.eos_token_ids.push_back(n);
    }
  }
}

}  // namespace

Result<Config> ConfigFromGguf(const GgufMetadata& m, const GgufShapeOf& shape_of) {
  Config c;
  c.from_gguf = true;
  const Result<std::string_view> architecture = m.String("general.architecture");
  if (!architecture) return architecture.error();
  std::vector<std::string_view> names;
  for (const Architecture& a : kArchitectures) {
    names.push_back(a.gguf);
    if (a.gguf == *architecture) c.family = std::string(a.family);
  }
  if (c.family.empty()) {
    return Error{Code::kUnsupported,
                 fmt::format("general.architecture '{}' is not implemented (these are: {})",
                             Printable(*architecture), fmt::join(names, ", "))};
  }
  c.architecture = std::string(*architecture);
  if (c.family == "llama" && m.Has("llama.expert_count") && !SaysNothing(m, "llama.expert_count"))
    c.family = "mixtral";
  const std::string prefix = c.architecture + ".";
  for (const std::string_view key : m.keys()) {
    if (!base::StartsWith(key, prefix) || !SoundsLikeMathematics(key.substr(prefix.size())))
      continue;
    const std::string_view name = key.substr(prefix.size());
    const auto in = [&](const auto& keys) {
      return std::find(keys.begin(), keys.end(), name) != keys.end();
    };
    if (!in(kKnownKeys) && !(HasExperts(c.family) && in(kExpertKeys)) && !SaysNothing(m, key)) {
      return Error{Code::kUnsupported,
                   fmt::format("metadata key '{}' is not implemented", Printable(key))};
    }
  }
  Reader r(m, c.architecture);
  ReadSizeKeys(m, shape_of, r, c);
  if (r.error()) return *r.error();
  ReadFamilyKeys(r, c);
  ReadWindowKeys(m, r, c);
  ReadExpertKeys(m, r, c);
  ReadDeltaKeys(m, r, c);
  ReadTokenKeys(m, r, c);
  if (r.error()) return *r.error();
  // GGUF's converter interleaves the rows of q and k of this architecture (Llama and Mistral).
  c.rope_interleaved = c.architecture == "llama";
  c.tie_word_embeddings = shape_of("output.weight").empty();
  const auto full = std::find_if(c.layer_types.begin(), c.layer_types.end(),
                                 [](LayerType t) { return t != LayerType::kLinear; });
  c.attention_bias =
      c.family != "qwen2" &&
      !shape_of(fmt::format("blk.{}.attn_q.bias", full - c.layer_types.begin())).empty();
  c.mlp_bias = !shape_of("blk.0.ffn_gate.bias").empty();
  ReadRopeKeys(r, c);
  if (r.error()) return *r.error();
  const Status status = CheckConfig(c);
  if (!status) return status.error();
  return c;
}

}  // namespace vllm::weights
