// config.json -> Config. Defaults are those of each family's configuration class in transformers.
//
// Options: what is read is read; an option that is unknown here and sounds like mathematics
// (config_check.h) is refused by name unless it is null, false, zero or empty, or is listed below
// as harmless; all other options are ignored.
#include <algorithm>
#include <array>
#include <boost/json/serialize.hpp>
#include <initializer_list>
#include <utility>

#include "base/json.h"
#include "base/os/file.h"
#include "base/strings.h"
#include "vllm/weights/config.h"
#include "vllm/weights/config_check.h"
#include "vllm/weights/config_experts.h"
#include "vllm/weights/config_rope.h"
#include "vllm/weights/family.h"
#include "vllm/weights/quantisation.h"

namespace vllm::weights {
namespace {

namespace json = boost::json;
using base::Code;
using base::Error;
using base::Printable;
using base::Result;
using base::Status;

// Options that sound like mathematics and are read, or don't matter to a trained dense model.
constexpr std::array<std::string_view, 21> kKnownOptions = {
    "rope_theta", "rope_scaling", "rope_parameters", "rope_local_base_freq",
    "partial_rotary_factor", "hidden_act", "hidden_activation", "attention_bias", "mlp_bias",
    "sliding_window", "sliding_window_pattern", "_sliding_window_pattern", "use_sliding_window",
    "max_window_layers", "layer_types", "use_bidirectional_attention",
    // Of training alone.
    "activation_dropout", "initializer_factor", "router_aux_loss_coef", "output_router_logits",
    "gradient_checkpointing_scale"};

bool SaysNothing(const json::value& v) {
  if (v.is_null()) return true;
  if (v.is_bool()) return !v.get_bool();
  if (v.is_number()) return v.to_number<double>() == 0;
  if (v.is_array()) return v.get_array().empty();
  if (v.is_object()) return v.get_object().empty();
  return v.is_string() && v.get_string().empty();
}

Status RefuseUnknown(const json::object& o, const Family& family) {
  if (const Result<Quantisation> q = ReadQuantisation(o); !q) return q.error();
  for (const auto& [key, value] : o) {
    const std::string_view name(key);
    if (!SoundsLikeMathematics(name) || SaysNothing(value)) continue;
    const auto in = [&](const auto& list) {
      return std::find(list.begin(), list.end(), name) != list.end();
    };
    const bool own = std::any_of(family.options.begin(), family.options.end(),
                                 [&](const Option& option) { return option.json == name; });
    if (!own && name != family.eps_key && !in(kKnownOptions) && !in(family.known) &&
        !(family.experts && IsExpertOption(*family.experts, name))) {
      return Error{Code::kUnsupported,
                   fmt::format("{} = {}: this option is not implemented for {}", Printable(name),
                               Printable(json::serialize(value)), family.name)};
    }
  }
  for (const auto& [key, taken] : {std::pair{"attention_bias", family.takes_attention_bias},
                                   {"mlp_bias", family.takes_mlp_bias},
                                   {"use_bidirectional_attention", false}}) {
    const Result<bool> v = base::JsonBool(o, key, false);
    if (!v) return v.error();
    if (*v && !taken)
      return Error{Code::kUnsupported,
                   fmt::format("{} = true is not implemented for {}", key, family.name)};
  }
  return {};
}

Result<const Family*> FamilyIn(const json::object& whole, Config& c) {
  const json::value* architectures = base::JsonGiven(whole, "architectures");
  const Result<std::string> model_type = base::JsonString(whole, "model_type", "");
  if (!model_type) return model_type.error();
  if (architectures != nullptr) {
    const json::array* list = architectures->if_array();
    if (list == nullptr || list->empty() || !(*list)[0].is_string()) {
      return Error{Code::kCorrupt, "field 'architectures' must be a list of names"};
    }
    c.architecture = std::string((*list)[0].get_string());
  } else if (model_type->empty()) {
    return Error{Code::kCorrupt,
                 "fields 'architectures' and 'model_type' are both missing: this isn't a model's "
                 "configuration"};
  }
  std::vector<std::string_view> names;
  for (const Family* f : Families()) {
    names.push_back(f->architecture);
    const bool by_type = c.architecture.empty() && !model_type->empty() &&
                         (*model_type == f->model_type || *model_type == f->wider_type);
    const bool wider = !c.architecture.empty() && c.architecture == f->wider_architecture;
    if (c.architecture != f->architecture && !by_type && !wider) continue;
    if (by_type) c.architecture = std::string(f->architecture);
    c.family = std::string(f->name);
    return f;
  }
  return Error{Code::kUnsupported,
               fmt::format("architecture '{}' is not implemented (these are: {})",
                           Printable(c.architecture.empty() ? *model_type : c.architecture),
                           fmt::join(names, ", "))};
}

// The text model's part of a multimodal configuration, with what stands only outside of it.
Result<json::object> TextPart(const json::object& whole) {
  const json::value* text = base::JsonGiven(whole, "text_config");
  if (text == nullptr) return whole;
  if (!text->is_object()) return Error{Code::kCorrupt, "field 'text_config' must be an object"};
  json::object out = text->get_object();
  for (const std::string_view key :
       {"tie_word_embeddings", "bos_token_id", "eos_token_id", "torch_dtype", "dtype",
        "quantization_config", "compression_config"}) {
    const json::value* outer = base::JsonGiven(whole, key);
    if (outer != nullptr && base::JsonGiven(out, key) == nullptr) out[key] = *outer;
  }
  return out;
}

Status ReadSizes(const json::object& o, const Family& f, Config& c) {
  const auto read = [&](std::string_view key, int64_t fallback, int64_t& out) -> Status {
    const Result<int64_t> v = base::JsonInt(o, key, fallback);
    if (!v) return v.error();
    out = *v;
    return {};
  };
  // The first sizes have no default: a file without them isn't a model's configuration. Some
  // families' files leave out more.
  for (const std::string_view key : {"hidden_size", "intermediate_size", "num_hidden_layers"}) {
    if (!f.dense && key == "intermediate_size") continue;
    if (base::JsonGiven(o, key) == nullptr)
      return Error{Code::kCorrupt, fmt::format("field '{}' is missing", key)};
  }
  for (const auto& [key, fallback] :
       {std::pair{"num_attention_heads", f.heads}, {"vocab_size", f.vocab_size}}) {
    if (fallback == 0 && base::JsonGiven(o, key) == nullptr)
      return Error{Code::kCorrupt, fmt::format("field '{}' is missing", key)};
  }
  struct Field {
    std::string_view key;
    int64_t fallback;
    int64_t* out;
  };
  for (const Field& field : std::initializer_list<Field>{
           {"hidden_size", 0, &c.hidden_size},
           {"intermediate_size", 0, &c.intermediate_size},
           {"num_hidden_layers", 0, &c.num_hidden_layers},
           {"num_attention_heads", f.heads, &c.num_heads},
           {"vocab_size", f.vocab_size, &c.vocab_size},
           {"max_position_embeddings", f.max_position_embeddings, &c.max_position_embeddings}}) {
    const Status status = read(field.key, field.fallback, *field.out);
    if (!status) return status;
  }
  // Before anything is divided by it.
  if (c.num_heads < 1)
    return Error{Code::kCorrupt,
                 fmt::format("num_attention_heads is {}: it must be at least 1", c.num_heads)};
  // A null kv count means as many as heads, an absent one the family's own default.
  const bool null_kv =
      o.contains("num_key_value_heads") && base::JsonGiven(o, "num_key_value_heads") == nullptr;
  Status status = read("num_key_value_heads", f.kv_heads == 0 || null_kv ? c.num_heads : f.kv_heads,
                       c.num_kv_heads);
  if (!status) return status;
  if (f.head_dim == 0 && base::JsonGiven(o, "head_dim") == nullptr &&
      c.hidden_size % c.num_heads != 0) {
    return Error{
        Code::kCorrupt,
        fmt::format(
            "hidden_size {} is no multiple of num_attention_heads {}, and head_dim is missing",
            c.hidden_size, c.num_heads)};
  }
  return read("head_dim", f.head_dim == 0 ? c.hidden_size / c.num_heads : f.head_dim, c.head_dim);
}

Result<std::vector<LayerType>> ExplicitLayerTypes(const json::value& list, const Family& f) {
  if (!list.is_array()) return Error{Code::kCorrupt, "field 'layer_types' must be a list"};
  std::vector<LayerType> out;
  for (const json::value& v : list.get_array()) {
    const std::string_view name =
        v.is_string() ? std::string_view(v.get_string()) : std::string_view();
    if (name == "full_attention") {
      out.push_back(LayerType::kFull);
    } else if (name == "sliding_attention" && f.windows != Windows::kNone) {
      out.push_back(LayerType::kSliding);
    } else if (name == "linear_attention" && f.linear_layers) {
      out.push_back(LayerType::kLinear);
    } else {
      return Error{Code::kUnsupported,
                   fmt::format("layer_types[{}] = {} is not implemented for {}", out.size(),
                               Printable(json::serialize(v)), f.name)};
    }
  }
  return out;
}

// sliding_window and layer_types. REQUIRES num_hidden_layers to be read.
Status ReadWindows(const json::object& o, const Family& f, Config& c) {
  if (c.num_hidden_layers < 1 || c.num_hidden_layers > 1 << 12) {
    return Error{Code::kCorrupt, fmt::format("num_hidden_layers is {}: it must be from 1 to 4096",
                                             c.num_hidden_layers)};
  }
  const bool null_window =
      o.contains("sliding_window") && base::JsonGiven(o, "sliding_window") == nullptr;
  const Result<int64_t> window =
      base::JsonInt(o, "sliding_window", null_window ? 0 : f.sliding_window);
  if (!window) return window.error();
  const Result<bool> use = base::JsonBool(o, "use_sliding_window", f.use_sliding_window);
  if (!use) return use.error();
  c.sliding_window = *use ? *window : 0;
  if (c.sliding_window < 0)
    return Error{Code::kCorrupt,
                 fmt::format("sliding_window is {}: it must be at least 1, or null for none",
                             c.sliding_window)};
  if (f.windows == Windows::kNone && c.sliding_window != 0) {
    return Error{Code::kUnsupported,
                 fmt::format("sliding_window is not implemented for {}", f.name)};
  }

  c.layer_types.assign(static_cast<size_t>(c.num_hidden_layers), LayerType::kFull);
  const json::value* list = base::JsonGiven(o, "layer_types");
  if (list != nullptr) {
    const Result<std::vector<LayerType>> types = ExplicitLayerTypes(*list, f);
    if (!types) return types.error();
    const bool slides =
        std::find(types->begin(), types->end(), LayerType::kSliding) != types->end();
    if (f.windows != Windows::kAll) {
      if (*use || !slides) c.layer_types = *types;
      return {};
    }
    if (slides) {
      return Error{
          Code::kUnsupported,
          fmt::format("layer_types with sliding_attention is not implemented for {}", f.name)};
    }
  }
  const Result<int64_t> full = base::JsonInt(o, "max_window_layers", 28);
  if (!full) return full.error();
  const Result<int64_t> old_pattern =
      base::JsonInt(o, "_sliding_window_pattern", std::max<int64_t>(f.window_period, 1));
  if (!old_pattern) return old_pattern.error();
  const Result<int64_t> pattern = base::JsonInt(o, "sliding_window_pattern", *old_pattern);
  if (!pattern) return pattern.error();
  if (*pattern < 1)
    return Error{Code::kCorrupt,
                 fmt::format("sliding_window_pattern is {}: it must be at least 1", *pattern)};
  for (int64_t i = 0; i < c.num_hidden_layers; ++i) {
    const bool slides = f.windows == Windows::kAll ||
                        (f.windows == Windows::kFromLayer && i >= *full) ||
                        (f.windows == Windows::kPeriod && (i + 1) % *pattern != 0);
    if (slides && c.sliding_window > 0) c.layer_types[static_cast<size_t>(i)] = LayerType::kSliding;
  }
  return {};
}

Status ReadNumbers(const json::object& o, const Family& f, Config& c) {
  const Result<double> eps = base::JsonNumber(o, f.eps_key, f.eps);
  if (!eps) return eps.error();
  c.rms_norm_eps = static_cast<float>(*eps);
  c.query_pre_attn_scalar = static_cast<double>(c.head_dim);
  c.norm_weight_offset = f.norm_weight_offset;
  c.rope_interleaved = f.interleaved;
  const Result<std::string> act = base::JsonString(o, f.activation_key, f.activation);
  if (!act) return act.error();
  c.hidden_act = *act;
  return {};
}

// Family::options.
Status ReadOptions(const json::object& o, const Family& f, Config& c) {
  for (const Option& option : f.options) {
    const json::value* v = base::JsonGiven(o, option.json);
    if (v == nullptr && !option.fallback)
      return Error{Code::kCorrupt, fmt::format("field '{}' is missing", option.json)};
    double value = option.fallback.value_or(0);
    if (v != nullptr && v->is_bool()) {
      value = v->get_bool() ? 1 : 0;
    } else if (v != nullptr) {
      const Result<double> number = base::JsonNumber(o, option.json, value);
      if (!number) return number.error();
      value = *number;
    }
    if (!(value >= option.least && value <= option.most)) {
      return Error{Code::kCorrupt, fmt::format("{} is {}: it must be from {} to {}", option.json,
                                               value, option.least, option.most)};
    }
    c.options[std::string(option.json)] = value;
  }
  return {};
}

Status ReadTokenIds(std::string_view key, const json::object& o, std::vector<int32_t>& out) {
  const json::value* v = base::JsonGiven(o, key);
  if (v == nullptr) return {};
  const auto add = [&](const json::value& id) {
    if (!id.is_int64() || id.get_int64() < INT32_MIN || id.get_int64() > INT32_MAX) return false;
    const auto n = static_cast<int32_t>(id.get_int64());
    if (n >= 0 && std::find(out.begin(), out.end(), n) == out.end()) out.push_back(n);  // -1: none
    return true;
  };
  bool good = true;
  if (v->is_array()) {
    for (const json::value& id : v->get_array()) good = good && add(id);
  } else {
    good = add(*v);
  }
  if (!good)
    return Error{Code::kCorrupt,
                 fmt::format("field '{}' must be a token id or a list of them", key)};
  return {};
}

Status ReadTheRest(const json::object& o, const json::value& generation, Config& c) {
  std::vector<int32_t> bos;
  for (const json::object* part : {&o, generation.if_object()}) {
    if (part == nullptr) continue;
    Status status = ReadTokenIds("eos_token_id", *part, c.eos_token_ids);
    if (!status) return part == &o ? status : Status(status.error().In("generation_config.json"));
    status = ReadTokenIds("bos_token_id", *part, bos);
    if (!status) return part == &o ? status : Status(status.error().In("generation_config.json"));
  }
  if (!bos.empty()) c.bos_token_id = bos[0];

  if (base::JsonGiven(o, "tie_word_embeddings") != nullptr) {
    const Result<bool> tie = base::JsonBool(o, "tie_word_embeddings", false);
    if (!tie) return tie.error();
    c.tie_word_embeddings = *tie;
  }
  const Result<std::string> old_dtype = base::JsonString(o, "torch_dtype", "float32");
  if (!old_dtype) return old_dtype.error();
  const Result<std::string> dtype = base::JsonString(o, "dtype", *old_dtype);
  if (!dtype) return dtype.error();
  const std::string_view name =
      base::StartsWith(*dtype, "torch.") ? std::string_view(*dtype).substr(6) : *dtype;
  if (name == "bfloat16") {
    c.dtype = vt::ir::DType::kBF16;
  } else if (name == "float16") {
    c.dtype = vt::ir::DType::kF16;
  } else if (name != "float32" && name != "auto") {
    return Error{Code::kUnsupported,
                 fmt::format("torch_dtype '{}' is not implemented (float32, float16, bfloat16 are)",
                             Printable(name))};
  }
  return {};
}

}  // namespace

Result<Config> ConfigFromJson(const json::value& value, const json::value& generation) {
  if (!value.is_object()) return Error{Code::kCorrupt, "the configuration must be a JSON object"};
  Config c;
  const Result<const Family*> family = FamilyIn(value.get_object(), c);
  if (!family) return family.error();
  const Family& f = **family;
  Result<json::object> text = TextPart(value.get_object());
  if (!text) return text.error();
  c.raw = *std::move(text);
  if (f.rewrite_json != nullptr) f.rewrite_json(c.raw);
  const json::object& o = c.raw;

  Status status = RefuseUnknown(o, f);
  if (status) status = ReadSizes(o, f, c);
  if (status) status = ReadWindows(o, f, c);
  if (status) status = ReadNumbers(o, f, c);
  if (status) status = ReadExperts(o, c);
  if (!status) return status.error();
  c.attention_bias =
      f.takes_attention_bias && *base::JsonBool(o, "attention_bias", f.attention_bias);
  c.mlp_bias = f.takes_mlp_bias && *base::JsonBool(o, "mlp_bias", false);
  status = ReadRope(o, c);
  if (status) status = ReadOptions(o, f, c);
  if (status && f.read_json != nullptr) status = f.read_json(o, c);
  if (status && f.read_whole_json != nullptr) status = f.read_whole_json(value.get_object(), c);
  if (status) status = ReadTheRest(o, generation, c);
  if (status) status = CheckConfig(c);
  if (!status) return status.error();
  return c;
}

Result<Config> ConfigFromDirectory(const std::string& directory) {
  constexpr base::JsonLimits kLimits = {.max_depth = 64, .max_bytes = size_t{64} << 20};
  const std::string path = directory + "/config.json";
  const Result<json::value> config = base::ParseJsonFile(path, kLimits);
  if (!config) return config.error();
  json::value generation;
  const std::string generation_path = directory + "/generation_config.json";
  if (base::os::FileExists(generation_path)) {
    Result<json::value> parsed = base::ParseJsonFile(generation_path, kLimits);
    if (!parsed) return parsed.error();
    generation = *std::move(parsed);
  }
  Result<Config> c = ConfigFromJson(*config, generation);
  if (!c) return c.error().In(path);
  return c;
}

}  // namespace vllm::weights
