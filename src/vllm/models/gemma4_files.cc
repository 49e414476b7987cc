#include "vllm/models/gemma4_files.h"

#include "base/json.h"
#include "base/strings.h"
#include "vllm/weights/gguf_reader.h"
#include "vllm/weights/virtual_tensors.h"

namespace vllm::models::gemma4 {

int64_t KvLayer(const weights::Config& c, int64_t layer) {
  const int64_t first = c.num_hidden_layers - c.IntOption(kShared);
  if (layer < first) return layer;
  int64_t of = first - 1;
  while (of >= 0 && IsFull(c, of) != IsFull(c, layer)) --of;
  return of;
}

namespace {

using weights::Config;
namespace json = boost::json;

void Rewrite(json::object& o) {
  if (const json::value* v = base::JsonGiven(o, "top_k_experts"))
    o["num_experts_per_tok"] = json::value(*v);
  const json::value* experts = base::JsonGiven(o, "enable_moe_block");
  if (experts == nullptr || *experts != true) o["num_experts"] = 0;
  if (base::JsonGiven(o, "rope_parameters") == nullptr) {
    o["rope_parameters"] = {
        {"full_attention",
         {{"rope_type", "proportional"}, {"partial_rotary_factor", 0.25}, {"rope_theta", 1e6}}},
        {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 1e4}}}};
  }
  // Tokens of pictures alone would see those behind them.
  if (const json::value* v = base::JsonGiven(o, "use_bidirectional_attention"))
    o["use_bidirectional_attention"] = *v != "vision";
}

base::Status Check(const Config& c) {
  const auto bad = [](std::string what) {
    return base::Error{base::Code::kCorrupt, std::move(what)};
  };
  const int64_t head_dim = c.IntOption(kHeadDim), kv_heads = c.IntOption(kKvHeads);
  if (head_dim < 2 || head_dim % 2 != 0)
    return bad(fmt::format("{} is {}: it must be even", kHeadDim, head_dim));
  if (kv_heads > 0 && c.num_heads % kv_heads != 0) {
    return bad(fmt::format("num_attention_heads {} is no multiple of {} {}", c.num_heads, kKvHeads,
                           kv_heads));
  }
  if (c.intermediate_size < 1 || c.intermediate_size > 1 << 20)
    return bad(fmt::format("intermediate_size is {}", c.intermediate_size));
  if (c.Option(kInputs) > 0 && c.IntOption(kInputVocabulary) < c.vocab_size) {
    return bad(fmt::format("{} is {}: it must be at least vocab_size {}", kInputVocabulary,
                           c.IntOption(kInputVocabulary), c.vocab_size));
  }
  for (int64_t layer = 0; layer < c.num_hidden_layers; ++layer) {
    if (KvLayer(c, layer) < 0) {
      return bad(fmt::format("{} is {}: layer {} has no layer of its kind before them", kShared,
                             c.IntOption(kShared), layer));
    }
  }
  return {};
}

// per_layer_config says once more how all layers without a window differ from the others.
base::Status ReadLayers(const json::object& layers, Config& c) {
  const json::object* of = nullptr;
  bool same = true;
  for (int64_t i = 0; i < c.num_hidden_layers; ++i) {
    const json::value* one = layers.if_contains(std::to_string(i));
    if (of == nullptr && one != nullptr) of = one->if_object();
    same &= IsFull(c, i) ? one != nullptr && of != nullptr && *one == *of : one == nullptr;
  }
  if (of == nullptr) return {};
  const base::Result<int64_t> head_dim = base::JsonInt(*of, "head_dim", c.head_dim),
                              kv_heads = base::JsonInt(*of, "num_key_value_heads", c.num_kv_heads);
  if (!head_dim) return head_dim.error();
  if (!kv_heads) return kv_heads.error();
  const bool alike = *kv_heads == c.num_kv_heads || c.Option(kKeyIsValue) != 0;
  if (!same || !alike || of->size() > size_t{of->contains("num_key_value_heads")} + 1) {
    return base::Error{base::Code::kUnsupported,
                       "per_layer_config: layers that differ otherwise than by the heads of those "
                       "without a window are not implemented"};
  }
  c.options[kHeadDim] = static_cast<double>(*head_dim);
  c.options[kKvHeads] = static_cast<double>(*kv_heads);
  return {};
}

base::Status ReadJson(const json::object& o, Config& c) {
  const base::Result<double> cap = base::JsonNumber(o, "final_logit_softcapping", 0);
  if (!cap) return cap.error();
  c.final_logit_softcapping = static_cast<float>(*cap);
  if (static_cast<int64_t>(c.layer_types.size()) != c.num_hidden_layers)
    return {};  // refused later
  c.layer_types.back() = weights::LayerType::kFull;
  if (const json::value* layers = base::JsonGiven(o, "per_layer_config")) {
    if (!layers->is_object())
      return base::Error{base::Code::kCorrupt, "field 'per_layer_config' must be an object"};
    const base::Status status = ReadLayers(layers->get_object(), c);
    if (!status) return status;
  }
  return Check(c);
}

// Keys of lists hold what layers with and without a window, or sharing or not, have.
void ReadKeys(weights::GgufReader& r, Config& c) {
  c.options[kHeadDim] = static_cast<double>(c.head_dim);
  c.head_dim = r.Int("attention.key_length_swa", c.head_dim);
  c.rope_local.partial_rotary_factor = 1;
  c.final_logit_softcapping = static_cast<float>(r.Number("final_logit_softcapping", 0));
  c.options[kInputVocabulary] = static_cast<double>(c.vocab_size);
  const auto list = [&](std::string_view key) {
    const auto values = r.metadata().Ints(r.Key(key));
    return values && values->size() == c.layer_types.size() ? *values : std::vector<int64_t>();
  };
  const std::vector<int64_t> kv = list("attention.head_count_kv"),
                             wide = list("feed_forward_length");
  if (kv.empty()) c.num_kv_heads = r.Int("attention.head_count_kv", c.num_heads);
  for (size_t i = 0; i < kv.size(); ++i) {
    if (IsFull(c, static_cast<int64_t>(i)))
      c.options[kKvHeads] = static_cast<double>(kv[i]);
    else
      c.num_kv_heads = kv[i];
  }
  c.intermediate_size = wide.empty() ? r.Int("feed_forward_length") : wide.front();
  c.options[kWide] = !wide.empty() && wide.back() == 2 * wide.front();
  const base::Status status = Check(c);
  if (!status) r.Fail(status.error());
}

// The scale of a layer, of one number, for each of its values. Layers that read others' keys and
// values may have projections that nobody uses.
base::Status MakeTensors(const Config& c, int64_t layer, weights::LayerTensors& t) {
  for (const char* name : {"k_proj.weight", "k_proj.bias", "v_proj.weight", "v_proj.bias",
                           "k_norm.weight", "v_norm.weight"}) {
    if (KvLayer(c, layer) != layer) t.tensors().erase(t.prefix() + "self_attn." + name);
  }
  return t.View("layer_scalar", {1}, {{"layer_scalar.weight", 0, {c.hidden_size}, {0}}});
}

}  // namespace

weights::Family Describe() {
  return {.name = "gemma4",
          .architecture = "Gemma4ForCausalLM",
          .model_type = "gemma4_text",
          .wider_architecture = "Gemma4ForConditionalGeneration",
          .wider_type = "gemma4",
          .gguf = "gemma4",
          .heads = 8,
          .vocab_size = 262144,
          .kv_heads = 4,
          .head_dim = 256,
          .max_position_embeddings = 131072,
          .activation_key = "hidden_activation",
          .activation = "gelu_pytorch_tanh",
          .tied = true,
          .takes_attention_bias = true,
          .rope_theta = 1e6,
          .own_local_rope = true,
          .windows = weights::Windows::kPeriod,
          .window_period = 6,
          .sliding_window = 512,
          .experts = weights::ExpertOptions{},
          .options = {{.json = kHeadDim, .fallback = 512, .least = 2, .most = 1 << 12},
                      {.json = kKvHeads, .fallback = 0, .most = 1 << 12},
                      {.json = kShared,
                       .gguf = "attention.shared_kv_layers",
                       .fallback = 0,
                       .most = 1 << 12},
                      {.json = kKeyIsValue, .fallback = 0},
                      {.json = kInputs,
                       .gguf = "embedding_length_per_layer_input",
                       .fallback = 256,
                       .most = 1 << 16},
                      {.json = kInputVocabulary, .fallback = 262144},
                      {.json = kWide, .fallback = 0}},
          .known = {"final_logit_softcapping", "top_k_experts", "enable_moe_block",
                    "attention.head_count_kv", "feed_forward_length", "attention.key_length_swa",
                    "attention.value_length_swa"},
          .rewrite_json = Rewrite,
          .read_json = ReadJson,
          .read_gguf = ReadKeys,
          .names = {{"post_attention_norm", "post_attention_layernorm"},
                    {"ffn_norm", "pre_feedforward_layernorm"},
                    {"post_ffw_norm", "post_feedforward_layernorm"},
                    {"pre_ffw_norm_2", "pre_feedforward_layernorm_2"},
                    {"post_ffw_norm_1", "post_feedforward_layernorm_1"},
                    {"post_ffw_norm_2", "post_feedforward_layernorm_2"},
                    {"inp_gate", "per_layer_input_gate"},
                    {"proj", "per_layer_projection"},
                    {"post_norm", "post_per_layer_input_norm"},
                    {"layer_output_scale.weight", "layer_scalar"},
                    {"ffn_gate_inp.scale", "router.scale"},
                    {"ffn_down_exps.scale", "router.per_expert_scale"}},
          .file_names = {{"per_layer_token_embd", "model.embed_tokens_per_layer"},
                         {"per_layer_model_proj", "model.per_layer_model_projection"},
                         {"per_layer_proj_norm", "model.per_layer_projection_norm"}},
          .renames = {{".mlp.experts.", ".experts."},
                      {".experts.", ".mlp.experts."},
                      {".router.proj.", ".mlp.gate."}},
          .ignored = {"embed_vision.embedding_projection.weight",
                      "embed_audio.embedding_projection.weight"},
          .make_tensors = MakeTensors};
}

}  // namespace vllm::models::gemma4
