// Voxtral: Llama that hears. Whisper's encoder turns pieces of sound into rows, four of which
// become the row of a token through a projector.
#include <array>
#include <cmath>

#include "base/json.h"
#include "base/strings.h"
#include "vllm/models/parts.h"
#include "vllm/weights/virtual_tensors.h"

namespace vllm::models {
namespace {

using vt::ir::Activation;
using vt::ir::Builder;
using vt::ir::ValueId;
using weights::Config;

// Of audio_config, in Config::options.
constexpr const char* kWidth = "audio.hidden_size";
constexpr const char* kInner = "audio.intermediate_size";
constexpr const char* kLayers = "audio.num_hidden_layers";
constexpr const char* kHeads = "audio.num_attention_heads";
constexpr const char* kPositions = "audio.max_source_positions";
constexpr float kEps = 1e-5f;  // of the encoder's norms

ValueId BuildText(Builder& b, const BuildContext& context) {
  const Config& c = context.config;
  const vt::ir::RopeAttrs rope = RopeOf(b, context, c.rope);
  const ValueId x =
      b.Media(c.hidden_size, b.Embed("model.embed_tokens.weight", c.vocab_size, c.hidden_size));
  return LmHead(b, c,
                DecoderLayers(b, c, x, [&](int64_t) { return AttentionParts{.rope = &rope}; }));
}

ValueId EncoderLayer(Builder& b, const Config& c, const std::string& p, ValueId x) {
  const int64_t width = c.IntOption(kWidth), heads = c.IntOption(kHeads), hd = width / heads;
  const ValueId h =
      b.LayerNorm(x, p + "self_attn_layer_norm.weight", p + "self_attn_layer_norm.bias", kEps);
  const auto project = [&](const char* name, bool bias) {
    return b.Heads(b.Linear(h, p + "self_attn." + name, width, bias), heads, hd);
  };
  const ValueId q = project("q_proj", true), k = project("k_proj", false),
                v = project("v_proj", true);
  const ValueId a = b.Attention(q, k, v,
                                {.heads = heads,
                                 .kv_heads = heads,
                                 .head_dim = hd,
                                 .scale = 1 / std::sqrt(static_cast<float>(hd)),
                                 .causal = false},
                                p + "self_attn");
  x = b.Add(b.Linear(a, p + "self_attn.out_proj", width, true), x);
  const ValueId m =
      b.LayerNorm(x, p + "final_layer_norm.weight", p + "final_layer_norm.bias", kEps);
  const ValueId inner = b.Act(b.Linear(m, p + "fc1", c.IntOption(kInner), true), Activation::kGelu);
  return b.Add(b.Linear(inner, p + "fc2", width, true), x);
}

// A token's media row holds the frames 2 t - 2 .. 2 t + 2, and 1 (of the first token 0): whether
// frame 2 t - 1 exists.
ValueId BuildAudio(Builder& b, const BuildContext& context) {
  const Config& c = context.config;
  const int64_t bins = c.audio.mel_bins, width = c.IntOption(kWidth);
  const ValueId row = b.Media(c.audio.row_width());
  // A convolution of three neighbouring places: a matrix for each.
  const auto conv = [&](const std::string& name, const std::array<ValueId, 3>& places) {
    ValueId sum = b.Weight(name + ".bias", {width});
    for (size_t i = 0; i < places.size(); ++i)
      sum = b.Add(b.Linear(places[i], fmt::format("{}.{}", name, i), width), sum);
    return b.Act(sum, Activation::kGelu);
  };
  const auto frame = [&](int64_t i) { return b.Slice(row, i * bins, bins); };
  // The first one at frame 2 t - 1 + i.
  const auto first = [&](int64_t i) {
    return conv("audio_tower.conv1", {frame(i), frame(i + 1), frame(i + 2)});
  };
  const ValueId before = b.ScaleRows(first(0), b.Slice(row, 5 * bins, 1));
  ValueId x = conv("audio_tower.conv2", {before, first(1), first(2)});
  x = b.Add(x, b.EmbedOf("audio_tower.embed_positions.weight", c.IntOption(kPositions), width,
                         b.Positions()));
  for (int64_t layer = 0; layer < c.IntOption(kLayers); ++layer)
    x = EncoderLayer(b, c, fmt::format("audio_tower.layers.{}.", layer), x);
  x = b.LayerNorm(x, "audio_tower.layer_norm.weight", "audio_tower.layer_norm.bias", kEps);
  x = b.OutputOnly(x, c.audio.fold());
  x = b.Act(b.Linear(x, "multi_modal_projector.linear_1", c.hidden_size), Activation::kGelu);
  x = b.Linear(x, "multi_modal_projector.linear_2", c.hidden_size);
  b.MarkHidden(x);
  return x;
}

base::Status ReadWhole(const boost::json::object& whole, Config& c) {
  const boost::json::value* part = base::JsonGiven(whole, "audio_config");
  if (part == nullptr || !part->is_object())
    return base::Error{base::Code::kCorrupt, "field 'audio_config' must be an object"};
  const boost::json::object& o = part->get_object();
  struct Field {
    std::string_view key;
    int64_t fallback, most;
  };
  constexpr Field kFields[] = {
      {"hidden_size", 1280, 1 << 16},          {"intermediate_size", 5120, 1 << 18},
      {"num_hidden_layers", 32, 1 << 10},      {"num_attention_heads", 20, 1 << 10},
      {"max_source_positions", 1500, 1 << 16}, {"num_mel_bins", 128, 1 << 10}};
  for (const Field& f : kFields) {
    const base::Result<int64_t> v = base::JsonInt(o, f.key, f.fallback);
    if (!v) return v.error().In("audio_config");
    if (*v < 1 || *v > f.most)
      return base::Error{base::Code::kCorrupt, fmt::format("audio_config: {} is {}: it must be "
                                                           "from 1 to {}",
                                                           f.key, *v, f.most)};
    c.options["audio." + std::string(f.key)] = static_cast<double>(*v);
  }
  for (const auto& [from, key] :
       {std::pair{&o, "activation_function"}, {&whole, "projector_hidden_act"}}) {
    const base::Result<std::string> act = base::JsonString(*from, key, "gelu");
    if (!act) return act.error();
    if (*act != "gelu")
      return base::Error{base::Code::kUnsupported,
                         fmt::format("{} '{}' is not implemented", key, base::Printable(*act))};
  }
  const base::Result<bool> scale = base::JsonBool(o, "scale_embedding", false);
  if (!scale) return scale.error();
  if (*scale) return base::Error{base::Code::kUnsupported, "scale_embedding is not implemented"};
  const base::Result<int64_t> token = base::JsonInt(whole, "audio_token_id", -1);
  if (!token) return token.error();
  const int64_t width = c.IntOption(kWidth), inner = c.IntOption(kInner),
                positions = c.IntOption(kPositions);
  if (*token < 0 || *token >= c.vocab_size || width % c.IntOption(kHeads) != 0 ||
      inner % width != 0 || positions % (inner / width) != 0) {
    return base::Error{base::Code::kCorrupt,
                       "audio_token_id must be a token, audio_config's heads must share "
                       "hidden_size, and intermediate_size / hidden_size positions a token"};
  }
  c.audio = {.mel_bins = c.IntOption("audio.num_mel_bins"),
             .positions = positions,
             .rows = positions / (inner / width),
             .token = static_cast<int32_t>(*token),
             .before = "[BEGIN_AUDIO]",
             .transcription = "[INST]{}[/INST]{}[TRANSCRIBE]"};
  return {};
}

// Filters stand as [out, in, places]: a matrix for each place.
base::Status MakeTensors(const Config& c, int64_t layer, weights::LayerTensors& t) {
  if (layer != 0) return {};
  weights::LayerTensors file(t.tensors(), "");
  const int64_t width = c.IntOption(kWidth);
  for (const auto& [name, in] :
       {std::pair{"audio_tower.conv1", c.audio.mel_bins}, {"audio_tower.conv2", width}}) {
    std::vector<weights::LayerTensors::Strided> places;
    for (int64_t i = 0; i < 3; ++i)
      places.push_back({fmt::format("{}.{}.weight", name, i), i, {width, in}, {3 * in, 3}});
    const base::Status status = file.View(std::string(name) + ".weight", {width, in, 3}, places);
    if (!status) return status;
  }
  return {};
}

weights::Family Voxtral() {
  return {.name = "voxtral",
          .architecture = "VoxtralForConditionalGeneration",
          .model_type = "voxtral",
          .heads = 32,
          .vocab_size = 131072,
          .kv_heads = 8,
          .head_dim = 128,
          .max_position_embeddings = 131072,
          .eps = 1e-5,
          .rope_theta = 1e8,
          .build_media = BuildAudio,
          .chat_template =
              "{{ bos_token }}{% for m in messages %}{% if m.role == 'system' %}"
              "{{ '[SYSTEM_PROMPT]' + m.content + '[/SYSTEM_PROMPT]' }}{% elif m.role == 'user' %}"
              "{{ '[INST]' + m.content + '[/INST]' }}{% elif m.role == 'assistant' %}"
              "{{ m.content + eos_token }}{% else %}"
              "{{ raise_exception('only system, user and assistant roles are known here') }}"
              "{% endif %}{% endfor %}",
          .read_whole_json = ReadWhole,
          .renames = {{"model.model.", "model."}},  // as transformers 5 writes them
          .make_tensors = MakeTensors};
}

}  // namespace

VLLM_MODEL_FAMILY(voxtral, BuildText, Voxtral())

}  // namespace vllm::models
