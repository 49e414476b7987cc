#include "vllm/weights/name_map.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "base/strings.h"

namespace vllm::weights {
namespace {

struct Pair {
  std::string_view gguf, hf;
};

constexpr std::array<Pair, 3> kWhole = {
    {{"token_embd", "model.embed_tokens"}, {"output_norm", "model.norm"}, {"output", "lm_head"}}};

// Of a layer, alike in every family: "blk.N.<gguf>" is "model.layers.N.<hf>".
constexpr std::array<Pair, 10> kLayer = {{{"attn_norm", "input_layernorm"},
                                          {"attn_q", "self_attn.q_proj"},
                                          {"attn_k", "self_attn.k_proj"},
                                          {"attn_v", "self_attn.v_proj"},
                                          {"attn_output", "self_attn.o_proj"},
                                          {"attn_q_norm", "self_attn.q_norm"},
                                          {"attn_k_norm", "self_attn.k_norm"},
                                          {"ffn_gate", "mlp.gate_proj"},
                                          {"ffn_up", "mlp.up_proj"},
                                          {"ffn_down", "mlp.down_proj"}}};

// The norms around the blocks: the same Hugging Face name means another place in Gemma's sandwich.
constexpr std::array<Pair, 1> kPlainNorms = {{{"ffn_norm", "post_attention_layernorm"}}};
constexpr std::array<Pair, 3> kSandwichNorms = {
    {{"post_attention_norm", "post_attention_layernorm"},
     {"ffn_norm", "pre_feedforward_layernorm"},
     {"post_ffw_norm", "post_feedforward_layernorm"}}};

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

template <size_t N>
std::optional<std::string_view> Lookup(const std::array<Pair, N>& table, std::string_view name,
                                       bool to_hf) {
  for (const Pair& p : table) {
    if ((to_hf ? p.gguf : p.hf) == name) return to_hf ? p.hf : p.gguf;
  }
  return std::nullopt;
}

std::optional<std::string> Translate(std::string_view family, std::string_view name, bool to_hf) {
  const std::optional<std::string_view> suffix = CutSuffix(name);
  if (!suffix) return std::nullopt;
  if (const auto whole = Lookup(kWhole, name, to_hf))
    return std::string(*whole) + std::string(*suffix);
  const std::string_view from = to_hf ? "blk." : "model.layers.",
                         to = to_hf ? "model.layers." : "blk.";
  if (!base::StartsWith(name, from)) return std::nullopt;
  const auto layer = CutLayer(name.substr(from.size()));
  if (!layer) return std::nullopt;
  std::optional<std::string_view> rest = Lookup(kLayer, layer->second, to_hf);
  const bool sandwich = base::StartsWith(family, "gemma");
  if (!rest && sandwich) rest = Lookup(kSandwichNorms, layer->second, to_hf);
  if (!rest && !sandwich) rest = Lookup(kPlainNorms, layer->second, to_hf);
  if (!rest) return std::nullopt;
  return fmt::format("{}{}.{}{}", to, layer->first, *rest, *suffix);
}

}  // namespace

std::optional<std::string> HfFromGguf(std::string_view family, std::string_view gguf_name) {
  return Translate(family, gguf_name, true);
}

std::optional<std::string> GgufFromHf(std::string_view family, std::string_view hf_name) {
  return Translate(family, hf_name, false);
}

std::optional<std::string> CanonicalName(std::string_view name) {
  for (const std::string_view other :
       {"vision_tower.", "vision_model.", "audio_tower.", "multi_modal_projector."}) {
    if (base::StartsWith(name, other) || base::StartsWith(name, fmt::format("model.{}", other)))
      return std::nullopt;
  }
  for (const auto& [prefix, instead] :
       {std::pair<std::string_view, std::string_view>{"model.language_model.", "model."},
        {"language_model.model.", "model."},
        {"language_model.", ""}}) {
    if (base::StartsWith(name, prefix))
      return std::string(instead) + std::string(name.substr(prefix.size()));
  }
  return std::string(name);
}

}  // namespace vllm::weights
