#include "vllm/weights/name_map.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <span>

#include "base/strings.h"
#include "vllm/weights/family.h"

namespace vllm::weights {
namespace {

using Pair = NamePair;

constexpr std::array<Pair, 3> kWhole = {
    {{"token_embd", "model.embed_tokens"}, {"output_norm", "model.norm"}, {"output", "lm_head"}}};

// Of a layer, alike in every family: "blk.N.<gguf>" is "model.layers.N.<hf>".
constexpr std::array<Pair, 11> kLayer = {{{"attn_norm", "input_layernorm"},
                                          {"attn_q", "self_attn.q_proj"},
                                          {"attn_k", "self_attn.k_proj"},
                                          {"attn_v", "self_attn.v_proj"},
                                          {"attn_output", "self_attn.o_proj"},
                                          {"attn_q_norm", "self_attn.q_norm"},
                                          {"attn_k_norm", "self_attn.k_norm"},
                                          {"ffn_norm", "post_attention_layernorm"},
                                          {"ffn_gate", "mlp.gate_proj"},
                                          {"ffn_up", "mlp.up_proj"},
                                          {"ffn_down", "mlp.down_proj"}}};

// Experts. GGUF keeps those of a layer in one tensor, old files one by one ("ffn_gate.7").
constexpr std::array<Pair, 9> kExperts = {{{"ffn_gate_inp", "mlp.gate"},
                                           {"ffn_gate_exps", "mlp.experts.gate_proj"},
                                           {"ffn_up_exps", "mlp.experts.up_proj"},
                                           {"ffn_down_exps", "mlp.experts.down_proj"},
                                           {"ffn_gate_up_exps", "mlp.experts.gate_up_proj"},
                                           {"ffn_gate_inp_shexp", "mlp.shared_expert_gate"},
                                           {"ffn_gate_shexp", "mlp.shared_expert.gate_proj"},
                                           {"ffn_up_shexp", "mlp.shared_expert.up_proj"},
                                           {"ffn_down_shexp", "mlp.shared_expert.down_proj"}}};

// Cuts ".weight" or ".bias" off.
std::optional<std::string_view> CutSuffix(std::string_view& name) {
  for (const std::string_view suffix : {".weight", ".bias"}) {
    if (!base::EndsWith(name, suffix)) continue;
    name.remove_suffix(suffix.size());
    return suffix;
  }
  return std::nullopt;
}

// "3.rest" -> "3" and "rest".
std::optional<std::pair<std::string_view, std::string_view>> CutLayer(std::string_view text) {
  const size_t dot = text.find('.');
  if (dot == 0 || dot == std::string_view::npos) return std::nullopt;
  const std::string_view number = text.substr(0, dot);
  const bool digits = std::all_of(number.begin(), number.end(),
                                  [](unsigned char c) { return std::isdigit(c) != 0; });
  // One spelling a layer, or two tensors of a file could get one name.
  if (!digits || (number.size() > 1 && number[0] == '0')) return std::nullopt;
  return std::pair{number, text.substr(dot + 1)};
}

std::optional<std::string_view> Lookup(std::span<const Pair> table, std::string_view name,
                                       bool to_hf) {
  for (const Pair& p : table) {
    if ((to_hf ? p.gguf : p.hf) == name) return to_hf ? p.hf : p.gguf;
  }
  return std::nullopt;
}

std::optional<std::string_view> LookupLayer(const Family& family, std::string_view name,
                                            bool to_hf) {
  if (const auto own = Lookup(family.names, name, to_hf)) return own;
  if (const auto same = Lookup(kLayer, name, to_hf)) return same;
  return family.experts ? Lookup(kExperts, name, to_hf) : std::nullopt;
}

// "ffn_gate.7" -> "mlp.experts.7.gate_proj".
std::optional<std::string> SingleExpert(std::string_view name) {
  for (const auto& [gguf, hf] : {Pair{"ffn_gate.", "gate_proj"}, Pair{"ffn_up.", "up_proj"},
                                 Pair{"ffn_down.", "down_proj"}}) {
    if (!base::StartsWith(name, gguf)) continue;
    const std::string_view number = name.substr(gguf.size());
    const bool digits =
        !number.empty() && std::all_of(number.begin(), number.end(),
                                       [](unsigned char c) { return std::isdigit(c) != 0; });
    if (digits && (number.size() == 1 || number[0] != '0'))
      return fmt::format("mlp.experts.{}.{}", number, hf);
  }
  return std::nullopt;
}

std::optional<std::string> Translate(std::string_view family_name, std::string_view name,
                                     bool to_hf) {
  static const Family kUnknown;
  const Family* found = FindFamily(family_name);
  const Family& family = found == nullptr ? kUnknown : *found;
  const std::string_view from = to_hf ? "blk." : family.layers, to = to_hf ? family.layers : "blk.";
  std::optional<std::pair<std::string_view, std::string_view>> layer;
  if (base::StartsWith(name, from)) layer = CutLayer(name.substr(from.size()));
  if (layer) {  // names that end otherwise than in .weight or .bias
    if (const auto whole = Lookup(family.names, layer->second, to_hf))
      return fmt::format("{}{}.{}", to, layer->first, *whole);
  }
  const std::optional<std::string_view> suffix = CutSuffix(name);
  if (!suffix) return std::nullopt;
  for (const std::span<const Pair> table :
       {std::span<const Pair>(family.file_names), std::span<const Pair>(kWhole)}) {
    if (const auto whole = Lookup(table, name, to_hf))
      return std::string(*whole) + std::string(*suffix);
  }
  if (!layer) return std::nullopt;
  layer->second.remove_suffix(suffix->size());
  if (const auto rest = LookupLayer(family, layer->second, to_hf))
    return fmt::format("{}{}.{}{}", to, layer->first, *rest, *suffix);
  if (!to_hf || !family.experts) return std::nullopt;
  const auto expert = SingleExpert(layer->second);
  if (!expert) return std::nullopt;
  return fmt::format("{}{}.{}{}", to, layer->first, *expert, *suffix);
}

}  // namespace

std::optional<std::string> HfFromGguf(std::string_view family, std::string_view gguf_name) {
  return Translate(family, gguf_name, true);
}

std::optional<std::string> GgufFromHf(std::string_view family, std::string_view hf_name) {
  return Translate(family, hf_name, false);
}

std::optional<std::string> CanonicalName(std::string_view name, bool hears) {
  for (const std::string_view audio : {"audio_tower.", "multi_modal_projector."}) {
    const size_t at = base::StartsWith(name, "model.") ? 6 : 0;
    if (hears && base::StartsWith(name.substr(at), audio)) return std::string(name.substr(at));
  }
  for (const std::string_view other : {"vision_tower.", "vision_model.", "visual.", "audio_tower.",
                                       "multi_modal_projector.", "mtp.", "mtp_"}) {
    if (base::StartsWith(name, other) || base::StartsWith(name, fmt::format("model.{}", other)))
      return std::nullopt;
  }
  for (const auto& [prefix, instead] :
       {std::pair<std::string_view, std::string_view>{"model.language_model.", "model."},
        {"language_model.model.", "model."},
        {"language_model.", ""},
        {"embed_tokens.", "model.embed_tokens."},  // without its head, as embedding models are
        {"layers.", "model.layers."},
        {"norm.", "model.norm."}}) {
    if (base::StartsWith(name, prefix))
      return std::string(instead) + std::string(name.substr(prefix.size()));
  }
  return std::string(name);
}

}  // namespace vllm::weights
