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
#include "vllm/weights/config_hybrid.h"
#include "vllm/weights/config_rope.h"

namespace vllm::weights {
namespace {

namespace json = boost::json;
using base::Code;
using base::Error;
using base::Printable;
using base::Result;
using base::Status;

struct FamilyDefaults {
  std::string_view family;
  std::string_view architecture;  // of the text model
  std::string_view model_type;
  std::string_view wider_architecture, wider_type;  // of the model with vision around it; or empty
  int64_t kv_heads;                                 // 0: as many as heads
  int64_t head_dim;                                 // 0: hidden_size / heads
  int64_t sliding_window;
  int64_t max_position_embeddings;
  std::string_view activation_key, activation;
  bool takes_attention_bias, takes_mlp_bias;
  float attention_cap, final_cap;
};

constexpr std::array<FamilyDefaults, 11> kFamilies = {{
    {"llama", "LlamaForCausalLM", "llama", "", "", 0, 0, 0, 2048, "hidden_act", "silu", true, true,
     0, 0},
    {"mistral", "MistralForCausalLM", "mistral", "", "", 8, 0, 4096, 131072, "hidden_act", "silu",
     false, false, 0, 0},
    {"mixtral", "MixtralForCausalLM", "mixtral", "", "", 8, 0, 0, 131072, "hidden_act", "silu",
     false, false, 0, 0},
    {"qwen2", "Qwen2ForCausalLM", "qwen2", "", "", 32, 0, 4096, 32768, "hidden_act", "silu", false,
     false, 0, 0},
    {"qwen3", "Qwen3ForCausalLM", "qwen3", "", "", 32, 128, 4096, 32768, "hidden_act", "silu", true,
     false, 0, 0},
    {"qwen3_moe", "Qwen3MoeForCausalLM", "qwen3_moe", "", "", 4, 0, 4096, 32768, "hidden_act",
     "silu", true, false, 0, 0},
    {"qwen3_next", "Qwen3NextForCausalLM", "qwen3_next", "", "", 2, 256, 0, 32768, "hidden_act",
     "silu", true, false, 0, 0},
    {"qwen3_5", "Qwen3_5ForCausalLM", "qwen3_5_text", "Qwen3_5ForConditionalGeneration", "qwen3_5",
     4, 256, 0, 32768, "hidden_act", "silu", true, false, 0, 0},
    {"qwen3_5_moe", "Qwen3_5MoeForCausalLM", "qwen3_5_moe_text",
     "Qwen3_5MoeForConditionalGeneration", "qwen3_5_moe", 2, 256, 0, 32768, "hidden_act", "silu",
     true, false, 0, 0},
    {"gemma2", "Gemma2ForCausalLM", "gemma2", "", "", 4, 256, 4096, 8192, "hidden_activation",
     "gelu_pytorch_tanh", true, false, 50, 30},
    {"gemma3", "Gemma3ForCausalLM", "gemma3_text", "Gemma3ForConditionalGeneration", "gemma3", 4,
     256, 4096, 131072, "hidden_activation", "gelu_pytorch_tanh", true, false, 0, 0},
}};

// Options that sound like mathematics and are read, or don't matter to a trained dense model.
constexpr std::array<std::string_view, 24> kKnownOptions = {
    "rope_theta", "rope_scaling", "rope_parameters", "rope_local_base_freq",
    "partial_rotary_factor", "rms_norm_eps", "hidden_act", "hidden_activation", "attention_bias",
    "mlp_bias", "sliding_window", "sliding_window_pattern", "_sliding_window_pattern",
    "use_sliding_window", "max_window_layers", "layer_types", "attn_logit_softcapping",
    "final_logit_softcapping", "use_bidirectional_attention",
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

const json::value* Set(const json::object& o, std::string_view key) {
  const json::value* v = o.if_contains(key);
  return v == nullptr || v->is_null() ? nullptr : v;
}

Status RefuseUnknown(const json::object& o, const FamilyDefaults& family) {
  for (const std::string_view key : {"quantization_config", "compression_config", "quantization"}) {
    const json::value* v = Set(o, key);
    if (v == nullptr || SaysNothing(*v)) continue;
    std::string method = "unnamed";
    if (v->is_object()) {
      const json::value* name = Set(v->get_object(), "quant_method");
      if (name != nullptr && name->is_string()) method = std::string(name->get_string());
    }
    return Error{
        Code::kUnsupported,
        fmt::format("{}: quantisation method '{}' is not implemented; take the unquantised "
                    "model or a GGUF of it",
                    key, Printable(method))};
  }
  for (const auto& [key, value] : o) {
    const std::string_view name(key);
    if (!SoundsLikeMathematics(name) || SaysNothing(value)) continue;
    if (IsExpertOption(family.family, name)) continue;
    if (std::find(kKnownOptions.begin(), kKnownOptions.end(), name) == kKnownOptions.end()) {
      return Error{Code::kUnsupported,
                   fmt::format("{} = {}: this option is not implemented for {}", Printable(name),
                               Printable(json::serialize(value)), family.family)};
    }
  }
  for (const auto& [key, taken] : {std::pair{"attention_bias", family.takes_attention_bias},
                                   {"mlp_bias", family.takes_mlp_bias},
                                   {"use_bidirectional_attention", false}}) {
    const Result<bool> v = base::JsonBool(o, key, false);
    if (!v) return v.error();
    if (*v && !taken)
      return Error{Code::kUnsupported,
                   fmt::format("{} = true is not implemented for {}", key, family.family)};
  }
  return {};
}

Result<const FamilyDefaults*> FindFamily(const json::object& whole, Config& c) {
  const json::value* architectures = Set(whole, "architectures");
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
  for (const FamilyDefaults& f : kFamilies) {
    names.push_back(f.architecture);
    const bool by_type =
        c.architecture.empty() && (*model_type == f.model_type || (*model_type == f.wider_type));
    const bool wider = !c.architecture.empty() && c.architecture == f.wider_architecture;
    if (c.architecture != f.architecture && !by_type && !wider) continue;
    if (by_type) c.architecture = std::string(f.architecture);
    c.family = std::string(f.family);
    return &f;
  }
  return Error{Code::kUnsupported,
               fmt::format("architecture '{}' is not implemented (these are: {})",
                           Printable(c.architecture.empty() ? *model_type : c.architecture),
                           fmt::join(names, ", "))};
}

// The text model's part of a multimodal configuration, with what stands only outside of it.
Result<json::object> TextPart(const json::object& whole) {
  const json::value* text = Set(whole, "text_config");
  if (text == nullptr) return whole;
  if (!text->is_object()) return Error{Code::kCorrupt, "field 'text_config' must be an object"};
  json::object out = text->get_object();
  for (const std::string_view key :
       {"tie_word_embeddings", "bos_token_id", "eos_token_id", "torch_dtype", "dtype",
        "quantization_config", "compression_config"}) {
    const json::value* outer = Set(whole, key);
    if (outer != nullptr && Set(out, key) == nullptr) out[key] = *outer;
  }
  return out;
}

Status ReadSizes(const json::object& o, const FamilyDefaults& f, Config& c) {
  const auto read = [&](std::string_view key, int64_t fallback, int64_t& out) -> Status {
    const Result<int64_t> v = base::JsonInt(o, key, fallback);
    if (!v) return v.error();
    out = *v;
    return {};
  };
  // The first sizes have no default: a file without them isn't a model's configuration. Gemma 3's
  // files leave out more.
  const bool gemma3 = f.family == "gemma3";
  for (const std::string_view key : {"hidden_size", "intermediate_size", "num_hidden_layers"}) {
    if (f.family == "qwen3_5_moe" && key == "intermediate_size") continue;  // no dense layers
    if (Set(o, key) == nullptr)
      return Error{Code::kCorrupt, fmt::format("field '{}' is missing", key)};
  }
  for (const std::string_view key : {"num_attention_heads", "vocab_size"}) {
    if (!gemma3 && Set(o, key) == nullptr)
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
           {"num_attention_heads", 8, &c.num_heads},
           {"vocab_size", 262208, &c.vocab_size},
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
      o.contains("num_key_value_heads") && Set(o, "num_key_value_heads") == nullptr;
  Status status = read("num_key_value_heads", f.kv_heads == 0 || null_kv ? c.num_heads : f.kv_heads,
                       c.num_kv_heads);
  if (!status) return status;
  if (f.head_dim == 0 && Set(o, "head_dim") == nullptr && c.hidden_size % c.num_heads != 0) {
    return Error{
        Code::kCorrupt,
        fmt::format(
            "hidden_size {} is no multiple of num_attention_heads {}, and head_dim is missing",
            c.hidden_size, c.num_heads)};
  }
  return read("head_dim", f.head_dim == 0 ? c.hidden_size / c.num_heads : f.head_dim, c.head_dim);
}

Result<std::vector<LayerType>> ExplicitLayerTypes(const json::value& list) {
  if (!list.is_array()) return Error{Code::kCorrupt, "field 'layer_types' must be a list"};
  std::vector<LayerType> out;
  for (const json::value& v : list.get_array()) {
    const std::string_view name =
        v.is_string() ? std::string_view(v.get_string()) : std::string_view();
    if (name == "full_attention") {
      out.push_back(LayerType::kFull);
    } else if (name == "sliding_attention") {
      out.push_back(LayerType::kSliding);
    } else {
      return Error{Code::kUnsupported, fmt::format("layer_types[{}] = {} is not implemented",
                                                   out.size(), Printable(json::serialize(v)))};
    }
  }
  return out;
}

// sliding_window and layer_types. REQUIRES num_hidden_layers to be read.
Status ReadWindows(const json::object& o, const FamilyDefaults& f, Config& c) {
  if (c.num_hidden_layers < 1 || c.num_hidden_layers > 1 << 12) {
    return Error{Code::kCorrupt, fmt::format("num_hidden_layers is {}: it must be from 1 to 4096",
                                             c.num_hidden_layers)};
  }
  const bool null_window = o.contains("sliding_window") && Set(o, "sliding_window") == nullptr;
  const Result<int64_t> window =
      base::JsonInt(o, "sliding_window", null_window ? 0 : f.sliding_window);
  if (!window) return window.error();
  const bool qwen = f.family == "qwen2" || f.family == "qwen3";
  const bool gemma = f.family == "gemma2" || f.family == "gemma3";
  const Result<bool> use =
      base::JsonBool(o, "use_sliding_window", !qwen && f.family != "qwen3_moe");
  if (!use) return use.error();
  c.sliding_window = *use ? *window : 0;
  if (c.sliding_window < 0)
    return Error{Code::kCorrupt,
                 fmt::format("sliding_window is {}: it must be at least 1, or null for none",
                             c.sliding_window)};
  if ((f.family == "llama" || IsHybrid(f.family)) && c.sliding_window != 0) {
    return Error{Code::kUnsupported,
                 fmt::format("sliding_window is not implemented for {}", f.family)};
  }

  c.layer_types.assign(static_cast<size_t>(c.num_hidden_layers), LayerType::kFull);
  if (IsHybrid(f.family)) return {};  // ReadDeltaNet says which are linear
  const json::value* list = Set(o, "layer_types");
  if (list != nullptr) {
    const Result<std::vector<LayerType>> types = ExplicitLayerTypes(*list);
    if (!types) return types.error();
    const bool slides =
        std::find(types->begin(), types->end(), LayerType::kSliding) != types->end();
    if (!gemma && !qwen && slides) {
      return Error{
          Code::kUnsupported,
          fmt::format("layer_types with sliding_attention is not implemented for {}", f.family)};
    }
    if (gemma || (qwen && *use)) c.layer_types = *types;
    if (gemma || qwen) return {};
  }
  const Result<int64_t> full = base::JsonInt(o, "max_window_layers", 28);
  if (!full) return full.error();
  const Result<int64_t> old_pattern = base::JsonInt(o, "_sliding_window_pattern", 6);
  if (!old_pattern) return old_pattern.error();
  const Result<int64_t> pattern = base::JsonInt(o, "sliding_window_pattern", *old_pattern);
  if (!pattern) return pattern.error();
  if (*pattern < 1)
    return Error{Code::kCorrupt,
                 fmt::format("sliding_window_pattern is {}: it must be at least 1", *pattern)};
  for (int64_t i = 0; i < c.num_hidden_layers; ++i) {
    bool slides = f.family == "mistral" || f.family == "mixtral" || f.family == "qwen3_moe";
    if (qwen) slides = i >= *full;
    if (f.family == "gemma2") slides = i % 2 == 0;
    if (f.family == "gemma3") slides = (i + 1) % *pattern != 0;
    if (slides && c.sliding_window > 0) c.layer_types[static_cast<size_t>(i)] = LayerType::kSliding;
  }
  return {};
}

Status ReadNumbers(const json::object& o, const FamilyDefaults& f, Config& c) {
  const bool gemma = f.family == "gemma2" || f.family == "gemma3";
  const auto read = [&](std::string_view key, double fallback) {
    return base::JsonNumber(o, key, fallback);
  };
  const Result<double> eps = read("rms_norm_eps", f.family == "mixtral" ? 1e-5 : 1e-6);
  if (!eps) return eps.error();
  c.rms_norm_eps = static_cast<float>(*eps);
  c.query_pre_attn_scalar = static_cast<double>(c.head_dim);
  if (gemma) {
    // A cap that is null is no cap, one that is absent is the family's.
    const auto cap = [&](std::string_view key, float fallback) {
      return read(key, o.contains(key) ? 0.0 : static_cast<double>(fallback));
    };
    const Result<double> scalar = read("query_pre_attn_scalar", 256);
    const Result<double> attention = cap("attn_logit_softcapping", f.attention_cap);
    const Result<double> final_cap = cap("final_logit_softcapping", f.final_cap);
    for (const Result<double>* r : {&scalar, &attention, &final_cap}) {
      if (!*r) return r->error();
    }
    c.query_pre_attn_scalar = *scalar;
    c.attn_logit_softcapping = static_cast<float>(*attention);
    c.final_logit_softcapping = static_cast<float>(*final_cap);
    c.norm_weight_offset = 1;
  } else {
    for (const std::string_view key :
         {"attn_logit_softcapping", "final_logit_softcapping", "query_pre_attn_scalar"}) {
      if (Set(o, key) != nullptr)
        return Error{Code::kUnsupported,
                     fmt::format("{} is not implemented for {}", key, f.family)};
    }
  }
  if (IsHybrid(f.family)) c.norm_weight_offset = 1;
  const Result<std::string> act = base::JsonString(o, f.activation_key, f.activation);
  if (!act) return act.error();
  c.hidden_act = *act;
  return {};
}

Status ReadTokenIds(std::string_view key, const json::object& o, std::vector<int32_t>& out) {
  const json::value* v = Set(o, key);
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

  if (Set(o, "tie_word_embeddings") != nullptr) {
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
  const Result<const FamilyDefaults*> family = FindFamily(value.get_object(), c);
  if (!family) return family.error();
  const FamilyDefaults& f = **family;
  Result<json::object> text = TextPart(value.get_object());
  if (!text) return text.error();
  c.raw = *std::move(text);
  const json::object& o = c.raw;

  Status status = RefuseUnknown(o, f);
  if (!status) return status.error();
  status = ReadSizes(o, f, c);
  if (!status) return status.error();
  status = ReadWindows(o, f, c);
  if (!status) return status.error();
  status = ReadNumbers(o, f, c);
  if (!status) return status.error();
  status = ReadExperts(o, c);
  if (!status) return status.error();
  status = ReadDeltaNet(o, c);
  if (!status) return status.error();
  c.attention_bias = f.takes_attention_bias && *base::JsonBool(o, "attention_bias", false);
  c.mlp_bias = f.takes_mlp_bias && *base::JsonBool(o, "mlp_bias", false);
  status = ReadRope(o, c);
  if (!status) return status.error();
  status = ReadTheRest(o, generation, c);
  if (!status) return status.error();
  status = CheckConfig(c);
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
