#include "vllm/weights/config_rope.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/json.h"
#include "base/strings.h"
#include "vllm/weights/family.h"

namespace vllm::weights {
namespace {

namespace json = boost::json;
using base::Code;
using base::Error;
using base::Printable;
using base::Result;
using base::Status;

constexpr std::array<std::string_view, 13> kRopeKeys = {"rope_type",
                                                        "type",
                                                        "rope_theta",
                                                        "factor",
                                                        "low_freq_factor",
                                                        "high_freq_factor",
                                                        "original_max_position_embeddings",
                                                        "attention_factor",
                                                        "beta_fast",
                                                        "beta_slow",
                                                        "mscale",
                                                        "mscale_all_dim",
                                                        "truncate"};

// longrope's divisors, one a pair.
Status ReadFactors(std::string_view where, std::string_view name, const json::value& value,
                   Rope& rope) {
  std::vector<double>& out = name == "short_factor" ? rope.short_factor : rope.long_factor;
  out.clear();
  const json::array* list = value.if_array();
  for (const json::value& v : list == nullptr ? json::array() : *list) {
    const double factor = v.is_number() ? v.to_number<double>() : 0;
    if (!(factor > 0 && factor < 1e9)) list = nullptr;
    if (list == nullptr) break;
    out.push_back(factor);
  }
  if (list != nullptr) return {};
  return Error{Code::kCorrupt,
               fmt::format("{}.{} must be a list of positive numbers", where, name)};
}

// One dictionary of rope settings on top of what `rope` holds already.
Status ReadDictionary(std::string_view where, const json::object& o, Rope& rope) {
  for (const auto& [key, value] : o) {
    const std::string_view name(key);
    if (value.is_null() || name == "partial_rotary_factor" || name == "finetuned") continue;
    // Which pairs turn by a picture's row and column. A text's three position ids are equal.
    if (name == "mrope_section" || name == "mrope_interleaved") continue;
    if (name == "short_factor" || name == "long_factor") {
      const Status status = ReadFactors(where, name, value, rope);
      if (!status) return status;
      continue;
    }
    if (std::find(kRopeKeys.begin(), kRopeKeys.end(), name) == kRopeKeys.end()) {
      return Error{Code::kUnsupported,
                   fmt::format("{}.{} is not implemented", where, Printable(name))};
    }
  }
  const Result<std::string> old_type = base::JsonString(o, "type", rope.type);
  if (!old_type) return old_type.error().In(std::string(where));
  const Result<std::string> type = base::JsonString(o, "rope_type", *old_type);
  if (!type) return type.error().In(std::string(where));
  rope.type = *type == "su" ? "longrope" : *type;
  if (rope.type != "longrope" && !(rope.short_factor.empty() && rope.long_factor.empty())) {
    return Error{Code::kUnsupported, fmt::format("{}.short_factor and long_factor are not "
                                                 "implemented for rope_type '{}'",
                                                 where, Printable(rope.type))};
  }
  const std::array<std::pair<std::string_view, double*>, 10> numbers = {
      {{"rope_theta", &rope.theta},
       {"factor", &rope.factor},
       {"low_freq_factor", &rope.low_freq_factor},
       {"high_freq_factor", &rope.high_freq_factor},
       {"attention_factor", &rope.attention_factor},
       {"beta_fast", &rope.beta_fast},
       {"beta_slow", &rope.beta_slow},
       {"mscale", &rope.mscale},
       {"mscale_all_dim", &rope.mscale_all_dim},
       {"partial_rotary_factor", &rope.partial_rotary_factor}}};
  for (const auto& [key, out] : numbers) {
    const Result<double> v = base::JsonNumber(o, key, *out);
    if (!v) return v.error().In(std::string(where));
    *out = *v;
  }
  const Result<int64_t> original =
      base::JsonInt(o, "original_max_position_embeddings", rope.original_max_position_embeddings);
  if (!original) return original.error().In(std::string(where));
  rope.original_max_position_embeddings = *original;
  const Result<bool> truncate = base::JsonBool(o, "truncate", rope.truncate);
  if (!truncate) return truncate.error().In(std::string(where));
  rope.truncate = *truncate;
  return {};
}

// `key` as an object; null when it's absent or null.
Result<const json::object*> ObjectField(const json::object& o, std::string_view key) {
  const json::value* v = o.if_contains(key);
  if (v == nullptr || v->is_null()) return static_cast<const json::object*>(nullptr);
  if (!v->is_object())
    return Error{Code::kCorrupt, fmt::format("field '{}' must be an object", key)};
  return &v->get_object();
}

bool SameRope(const Rope& a, const Rope& b) {
  const auto key = [](const Rope& r) {
    return std::make_tuple(r.type, r.theta, r.factor, r.low_freq_factor, r.high_freq_factor,
                           r.original_max_position_embeddings, r.attention_factor, r.beta_fast,
                           r.beta_slow, r.mscale, r.mscale_all_dim, r.truncate,
                           r.partial_rotary_factor);
  };
  return key(a) == key(b);
}

// Settings beside each other in the configuration: rope_theta, partial_rotary_factor,
// rope_local_base_freq.
Status ReadFlat(const json::object& o, bool own_local, Config& config) {
  for (const auto& [key, out] : {std::pair{"rope_theta", &config.rope.theta},
                                 {"partial_rotary_factor", &config.rope.partial_rotary_factor}}) {
    const Result<double> v = base::JsonNumber(o, key, *out);
    if (!v) return v.error();
    *out = *v;
  }
  config.rope_local.partial_rotary_factor = config.rope.partial_rotary_factor;
  if (!own_local) {
    config.rope_local.theta = config.rope.theta;
    return {};
  }
  const Result<double> local = base::JsonNumber(o, "rope_local_base_freq", config.rope_local.theta);
  if (!local) return local.error();
  config.rope_local.theta = *local;
  return {};
}

}  // namespace

Status CheckRope(std::string_view where, int64_t max_position_embeddings, Rope& rope) {
  const auto bad = [&](std::string_view field, double value) {
    return Error{Code::kCorrupt,
                 fmt::format("{}.{} is {}, which makes no sense", where, field, value)};
  };
  const auto positive = [](double v) { return std::isfinite(v) && v > 0; };
  constexpr std::array<std::string_view, 7> kTypes = {
      "default", "linear", "dynamic", "llama3", "yarn", "longrope", "proportional"};
  if (std::find(kTypes.begin(), kTypes.end(), rope.type) == kTypes.end()) {
    return Error{Code::kUnsupported,
                 fmt::format("{}.rope_type '{}' is not implemented (these are: {})", where,
                             Printable(rope.type), fmt::join(kTypes, ", "))};
  }
  if (!positive(rope.theta)) return bad("rope_theta", rope.theta);
  if (!positive(rope.partial_rotary_factor) || rope.partial_rotary_factor > 1) {
    return bad("partial_rotary_factor", rope.partial_rotary_factor);
  }
  if (rope.type == "default") return {};
  if (!positive(rope.factor)) return bad("factor", rope.factor);
  // Dynamic scaling grows from the length that the model was trained on, which is the model's own.
  if (rope.type == "dynamic" || rope.original_max_position_embeddings == 0) {
    rope.original_max_position_embeddings = max_position_embeddings;
  }
  if (rope.original_max_position_embeddings < 1) {
    return bad("original_max_position_embeddings",
               static_cast<double>(rope.original_max_position_embeddings));
  }
  if (rope.type == "longrope") {
    if (rope.short_factor.empty() || rope.short_factor.size() != rope.long_factor.size()) {
      return Error{
          Code::kCorrupt,
          fmt::format("{}: longrope needs short_factor and long_factor, equally long", where)};
    }
    const auto original = static_cast<double>(rope.original_max_position_embeddings);
    // The files that have it leave the factor out.
    if (rope.factor == 1) rope.factor = static_cast<double>(max_position_embeddings) / original;
    if (!std::isfinite(rope.attention_factor) || rope.attention_factor < 0)
      return bad("attention_factor", rope.attention_factor);
  }
  if (rope.type == "llama3") {
    if (!positive(rope.low_freq_factor)) return bad("low_freq_factor", rope.low_freq_factor);
    if (!positive(rope.high_freq_factor) || rope.high_freq_factor < rope.low_freq_factor) {
      return bad("high_freq_factor", rope.high_freq_factor);
    }
  }
  if (rope.type == "yarn") {
    if (!positive(rope.beta_fast)) return bad("beta_fast", rope.beta_fast);
    if (!positive(rope.beta_slow)) return bad("beta_slow", rope.beta_slow);
    if (rope.theta <= 1) return bad("rope_theta", rope.theta);
    for (const auto& [name, value] : {std::pair{"attention_factor", rope.attention_factor},
                                      {"mscale", rope.mscale},
                                      {"mscale_all_dim", rope.mscale_all_dim}}) {
      if (!std::isfinite(value) || value < 0) return bad(name, value);
    }
  }
  return {};
}

Status ReadRope(const json::object& o, Config& config) {
  const Family& family = FamilyOf(config);
  const bool own_local = family.own_local_rope;
  config.rope = Rope{};
  config.rope_local = Rope{};
  config.rope.theta = family.rope_theta;
  config.rope_local.theta = family.local_rope_theta;
  config.rope.partial_rotary_factor = family.partial_rotary_factor;

  Status status = ReadFlat(o, own_local, config);
  if (!status) return status;
  const Result<const json::object*> scaling = ObjectField(o, "rope_scaling");
  if (!scaling) return scaling.error();
  const Result<const json::object*> parameters = ObjectField(o, "rope_parameters");
  if (!parameters) return parameters.error();

  if (*parameters != nullptr && !(*parameters)->empty()) {
    const json::object& p = **parameters;
    const bool keyed = p.contains("full_attention") || p.contains("sliding_attention");
    if (!keyed) {
      status = ReadDictionary("rope_parameters", p, config.rope);
      if (!status) return status;
    } else {
      for (const auto& [key, rope] :
           {std::pair{"full_attention", &config.rope}, {"sliding_attention", &config.rope_local}}) {
        const Result<const json::object*> one = ObjectField(p, key);
        if (!one) return one.error().In("rope_parameters");
        if (*one != nullptr)
          status = ReadDictionary(fmt::format("rope_parameters.{}", key), **one, *rope);
        if (!status) return status;
      }
      for (const auto& [key, value] : p) {
        if (key != "full_attention" && key != "sliding_attention" && !value.is_null()) {
          return Error{Code::kUnsupported, fmt::format("rope_parameters.{} is not implemented",
                                                       Printable(std::string_view(key)))};
        }
      }
    }
    if (!keyed && !own_local) config.rope_local = config.rope;
    if (keyed && !own_local) {
      if (!p.contains("sliding_attention")) config.rope_local = config.rope;
      if (!p.contains("full_attention")) config.rope = config.rope_local;
      if (!SameRope(config.rope, config.rope_local)) {
        return Error{Code::kUnsupported,
                     fmt::format("rope_parameters: different settings for full and sliding layers "
                                 "are not implemented for {}",
                                 config.family)};
      }
    }
  }
  // A file that has both means rope_scaling to amend rope_parameters (so does transformers).
  if (*scaling != nullptr) {
    status = ReadDictionary("rope_scaling", **scaling, config.rope);
    if (!status) return status;
  }
  const Result<int64_t> original = base::JsonInt(o, "original_max_position_embeddings",
                                                 config.rope.original_max_position_embeddings);
  if (!original) return original.error();
  config.rope.original_max_position_embeddings = *original;
  if (!own_local) config.rope_local = config.rope;
  status = CheckRope("rope_parameters", config.max_position_embeddings, config.rope);
  if (!status) return status;
  return CheckRope("rope_parameters", config.max_position_embeddings, config.rope_local);
}

}  // namespace vllm::weights
