// GGUF metadata -> Config. Keys are "<architecture>.<name>". What GGUF leaves out is what its
// converter leaves out: windows alternate as the architecture says, query_pre_attn_scalar follows
// from the size of the model.
#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "base/strings.h"
#include "vllm/weights/config.h"
#include "vllm/weights/config_check.h"
#include "vllm/weights/config_rope.h"
#include "vllm/weights/family.h"
#include "vllm/weights/gguf.h"
#include "vllm/weights/gguf_reader.h"

namespace vllm::weights {
namespace {

using base::Code;
using base::Error;
using base::Printable;
using base::Result;
using base::Status;

// Of families with experts alone.
constexpr std::array<std::string_view, 10> kExpertKeys = {"expert_count",
                                                          "expert_shared_count",
                                                          "expert_group_count",
                                                          "expert_group_used_count",
                                                          "expert_used_count",
                                                          "expert_feed_forward_length",
                                                          "expert_shared_feed_forward_length",
                                                          "expert_gating_func",
                                                          "expert_weights_norm",
                                                          "expert_weights_scale"};

// Keys that sound like mathematics and are read below, or don't matter.
constexpr std::array<std::string_view, 18> kKnownKeys = {"attention.layer_norm_rms_epsilon",
                                                         "attention.layer_norm_epsilon",
                                                         "attention.sliding_window",
                                                         "attention.sliding_window_pattern",
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
                                                         "rope.dimension_sections"};

bool SaysNothing(const GgufMetadata& m, std::string_view key) {
  const GgufValue& v = *m.Find(key);
  return std::all_of(v.bytes.begin(), v.bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}

void ReadRopeKeys(GgufReader& r, Config& c) {
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
  const bool own_local = FamilyOf(c).own_local_rope;
  c.rope_local = c.rope;
  if (own_local) {
    c.rope_local.theta = FamilyOf(c).local_rope_theta;
    c.rope_local.partial_rotary_factor =
        static_cast<double>(r.Int("rope.dimension_count_swa", rotary)) /
        static_cast<double>(c.head_dim);
  }
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
  if (!own_local) c.rope_local = c.rope;
  for (Rope* rope : {&c.rope, &c.rope_local}) {
    const Status status = CheckRope(r.Key("rope.scaling"), c.max_position_embeddings, *rope);
    if (!status) r.Fail(status.error());
  }
}

// Which layers slide. The key holds a period (one full layer in every n) or a bool a layer.
void ReadWindowKeys(const GgufMetadata& m, GgufReader& r, Config& c) {
  c.layer_types.assign(static_cast<size_t>(c.num_hidden_layers), LayerType::kFull);
  const Family& f = FamilyOf(c);
  c.sliding_window = r.Int("attention.sliding_window", f.gguf_sliding_window);
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
  if (f.windows == Windows::kAll && pattern == nullptr) {
    c.layer_types.assign(c.layer_types.size(), LayerType::kSliding);
    return;
  }
  if (f.windows != Windows::kPeriod && pattern == nullptr) {
    r.Fail({Code::kUnsupported, fmt::format("metadata key '{}' is not implemented for {}",
                                            r.Key("attention.sliding_window"), c.family)});
    return;
  }
  const int64_t period = r.Int("attention.sliding_window_pattern", f.window_period);
  if (period < 1) {
    r.Fail({Code::kCorrupt,
            fmt::format("metadata key '{}' is {}: it must be at least 1", key, period)});
    return;
  }
  for (int64_t i = 0; i < c.num_hidden_layers; ++i) {
    if ((i + 1) % period != 0) c.layer_types[static_cast<size_t>(i)] = LayerType::kSliding;
  }
}

void ReadSizeKeys(const GgufMetadata& m, const GgufShapeOf& shape_of, GgufReader& r, Config& c) {
  c.hidden_size = r.Int("embedding_length");
  c.nextn_layers = r.Int("nextn_predict_layers", 0);
  if (c.nextn_layers < 0 || c.nextn_layers > 64) {
    r.Fail({Code::kCorrupt, fmt::format("metadata key '{}' is {}: it must be from 0 to 64",
                                        r.Key("nextn_predict_layers"), c.nextn_layers)});
    return;
  }
  c.num_hidden_layers = r.Int("block_count");
  if (c.num_hidden_layers > c.nextn_layers) c.num_hidden_layers -= c.nextn_layers;
  const std::vector<std::string_view>& known = FamilyOf(c).known;
  const auto own = [&](std::string_view name) {
    return std::find(known.begin(), known.end(), name) != known.end();
  };
  // A file whose layers all have experts may lack it.
  if (!own("feed_forward_length")) {
    c.intermediate_size =
        FamilyOf(c).experts ? r.Int("feed_forward_length", 0) : r.Int("feed_forward_length");
  }
  if (const auto list = m.Ints(r.Key("attention.head_count"));
      list && !list->empty() && own("attention.head_count")) {
    c.layer_heads = *list;
    c.num_heads = *std::max_element(list->begin(), list->end());
  } else {
    c.num_heads = r.Int("attention.head_count");
  }
  c.num_kv_heads =
      own("attention.head_count_kv") ? c.num_heads : r.Int("attention.head_count_kv", c.num_heads);
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
  if (!own("attention.value_length") && r.Int("attention.value_length", c.head_dim) != c.head_dim) {
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
  const bool rms = r.Has("attention.layer_norm_rms_epsilon");
  c.rms_norm_eps = static_cast<float>(r.Number(rms || !r.Has("attention.layer_norm_epsilon")
                                                   ? "attention.layer_norm_rms_epsilon"
                                                   : "attention.layer_norm_epsilon"));
}

// Family::options.
void ReadOptionKeys(const Family& f, GgufReader& r, Config& c) {
  for (const Option& option : f.options) {
    if (option.gguf.empty()) {
      c.options[std::string(option.json)] = option.fallback.value_or(0);
      continue;
    }
    const double value = r.Number(option.gguf, option.fallback);
    c.options[std::string(option.json)] = value;
    if (!r.error() && !(value >= option.least && value <= option.most)) {
      r.Fail(Code::kCorrupt, option.gguf,
             fmt::format("is {}: it must be from {} to {}", value, option.least, option.most));
    }
  }
}

// llama.cpp's graphs have experts in every layer but the first ones; a file that asks for another
// router than its family's is refused.
void ReadExpertKeys(GgufReader& r, Config& c) {
  const std::optional<ExpertOptions>& options = FamilyOf(c).experts;
  if (!options || (options->defaults.count == 0 && !r.Has("expert_count"))) return;
  c.sparse_layers.assign(static_cast<size_t>(c.num_hidden_layers), true);
  Experts& e = c.experts = options->defaults;
  e.normalise = true;
  e.count = r.Int("expert_count");
  e.per_token = r.Int("expert_used_count");
  if (r.error()) return;
  const int64_t of_layer = e.per_token > 0 ? c.intermediate_size / e.per_token : 0;
  e.intermediate_size = r.Int("expert_feed_forward_length",
                              options->size_is_intermediate ? c.intermediate_size : of_layer);
  if (options->deepseek || r.Has("leading_dense_block_count")) {
    // What is not said is the family's.
    if (const int64_t scores = r.Int("expert_gating_func", 0); scores != 0 && options->deepseek)
      e.sigmoid = e.bias = scores == 2;
    const int64_t shared = r.Int("expert_shared_count", 0);
    const int64_t dense = r.Int("leading_dense_block_count", 0);
    if (dense < 0 || dense > c.num_hidden_layers)
      r.Fail(Code::kCorrupt, "leading_dense_block_count", fmt::format("is {}", dense));
    if (shared < 0 || shared > 1 << 10 || e.intermediate_size > 1 << 20)
      r.Fail(Code::kCorrupt, "expert_shared_count", fmt::format("is {}", shared));
    if (r.error()) return;
    e.shared_intermediate_size = r.Has("expert_shared_count")
                                     ? shared * e.intermediate_size
                                     : r.Int("expert_shared_feed_forward_length", 0);
    std::fill_n(c.sparse_layers.begin(), dense, false);
    e.groups = std::max<int64_t>(r.Int("expert_group_count", 1), 1);
    e.top_groups = std::max<int64_t>(r.Int("expert_group_used_count", 1), 1);
    e.normalise = r.Number("expert_weights_norm", options->deepseek ? 0 : 1) != 0;
    const double scale = r.Number("expert_weights_scale", 1);
    e.scale = scale == 0 ? 1 : scale;
  } else if (e.shared_intermediate_size > 0) {
    e.shared_intermediate_size = r.Int("expert_shared_feed_forward_length", c.intermediate_size);
  }
  struct Usual {
    std::string_view key;
    double value;
    bool zero_too;  // says nothing
  };
  const std::array<Usual, 5> usual = {
      {{"expert_gating_func", e.sigmoid ? 2.0 : 1.0, true},
       {"expert_weights_norm", e.normalise ? 1.0 : 0.0, false},
       {"expert_weights_scale", e.scale, true},
       {"expert_group_count", static_cast<double>(e.groups), true},
       {"expert_group_used_count", static_cast<double>(e.top_groups), true}}};
  for (const Usual& u : usual) {
    const double value = r.Has(u.key) ? r.Number(u.key) : u.value;
    if (r.error()) return;
    if (value != u.value && !(value == 0 && u.zero_too)) {
      r.Fail(Code::kUnsupported, u.key,
             fmt::format("= {} is not implemented for {}", value, c.family));
    }
  }
}

void ReadTokenKeys(const GgufMetadata& m, GgufReader& r, Config& c) {
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
  const Family* family = nullptr;
  std::set<std::string_view> names;
  const std::string expert_count = fmt::format("{}.expert_count", *architecture);
  const bool experts = m.Has(expert_count) && !SaysNothing(m, expert_count);
  for (const Family* f : Families()) {
    if (f->gguf.empty()) continue;
    names.insert(f->gguf);
    // Of families that share an architecture, the one that has experts if the file has.
    if (f->gguf == *architecture && (family == nullptr || f->experts.has_value() == experts))
      family = f;
  }
  if (family == nullptr) {
    return Error{Code::kUnsupported,
                 fmt::format("general.architecture '{}' is not implemented (these are: {})",
                             Printable(*architecture), fmt::join(names, ", "))};
  }
  c.architecture = std::string(*architecture);
  c.family = std::string(family->name);
  const std::string prefix = c.architecture + ".";
  for (const std::string_view key : m.keys()) {
    if (!base::StartsWith(key, prefix) || !SoundsLikeMathematics(key.substr(prefix.size())))
      continue;
    const std::string_view name = key.substr(prefix.size());
    const auto in = [&](const auto& keys) {
      return std::find(keys.begin(), keys.end(), name) != keys.end();
    };
    const bool own = std::any_of(family->options.begin(), family->options.end(),
                                 [&](const Option& option) { return option.gguf == name; });
    if (!own && !in(kKnownKeys) && !in(family->known) && !(family->experts && in(kExpertKeys)) &&
        !SaysNothing(m, key)) {
      return Error{Code::kUnsupported,
                   fmt::format("metadata key '{}' is not implemented", Printable(key))};
    }
  }
  GgufReader r(m, c.architecture);
  ReadSizeKeys(m, shape_of, r, c);
  if (r.error()) return *r.error();
  c.query_pre_attn_scalar = static_cast<double>(c.head_dim);
  c.hidden_act = std::string(family->activation);
  ReadWindowKeys(m, r, c);
  ReadExpertKeys(r, c);
  ReadTokenKeys(m, r, c);
  if (r.error()) return *r.error();
  c.rope_interleaved = family->interleaved || family->gguf_interleaved;
  c.tie_word_embeddings = shape_of("output.weight").empty();
  c.mlp_bias = !shape_of("blk.0.ffn_gate.bias").empty();
  ReadRopeKeys(r, c);
  ReadOptionKeys(*family, r, c);
  if (r.error()) return *r.error();
  if (family->read_gguf != nullptr) family->read_gguf(r, c);
  if (r.error()) return *r.error();
  for (int64_t i = 0; i < c.num_hidden_layers && family->takes_attention_bias; ++i)
    c.attention_bias |= !shape_of(fmt::format("blk.{}.attn_q.bias", i)).empty();
  const Status status = CheckConfig(c);
  if (!status) return status.error();
  return c;
}

}  // namespace vllm::weights
