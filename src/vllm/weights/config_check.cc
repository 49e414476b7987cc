#include "vllm/weights/config_check.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/strings.h"
#include "vllm/weights/config_experts.h"

namespace vllm::weights {

using base::Code;
using base::Error;
using base::Status;

bool SoundsLikeMathematics(std::string_view option) {
  constexpr std::array<std::string_view, 19> kWords = {
      "rope",           "rotary",      "scale",
      "scaling",        "softcap",     "multiplier",
      "norm",           "act",         "expert",
      "moe_",           "window",      "bias",
      "clip",           "qk_",         "temperature_tuning",
      "bidirectional",  "layer_types", "alibi",
      "pre_attn_scalar"};
  return std::any_of(kWords.begin(), kWords.end(), [&](std::string_view word) {
    return option.find(word) != std::string_view::npos;
  });
}

Status CheckConfig(const Config& c) {
  struct Bound {
    std::string_view field;
    int64_t value, most;
  };
  const bool dense =
      c.sparse_layers.empty() ||
      std::find(c.sparse_layers.begin(), c.sparse_layers.end(), false) != c.sparse_layers.end();
  // Each limit is several times the largest published model's.
  const std::array<Bound, 8> bounds = {
      {{"hidden_size", c.hidden_size, 1 << 18},
       // No layer reads it where all have experts, so a file may lack it.
       {"intermediate_size", dense ? c.intermediate_size : 1, 1 << 20},
       {"num_hidden_layers", c.num_hidden_layers, 1 << 12},
       {"num_attention_heads", c.num_heads, 1 << 12},
       {"num_key_value_heads", c.num_kv_heads, 1 << 12},
       {"head_dim", c.head_dim, 1 << 12},
       {"vocab_size", c.vocab_size, 1 << 24},
       {"max_position_embeddings", c.max_position_embeddings, 1 << 30}}};
  for (const Bound& b : bounds) {
    if (b.value < 1 || b.value > b.most) {
      return Error{Code::kCorrupt,
                   fmt::format("{} is {}: it must be from 1 to {}", b.field, b.value, b.most)};
    }
  }
  if (c.num_heads % c.num_kv_heads != 0) {
    return Error{Code::kCorrupt,
                 fmt::format("num_attention_heads {} is no multiple of num_key_value_heads {}",
                             c.num_heads, c.num_kv_heads)};
  }
  if (!c.layer_heads.empty() &&
      (static_cast<int64_t>(c.layer_heads.size()) != c.num_hidden_layers ||
       std::any_of(c.layer_heads.begin(), c.layer_heads.end(), [&](int64_t heads) {
         return heads < 1 || heads > 1 << 12 || heads % c.num_kv_heads != 0;
       }))) {
    return Error{
        Code::kCorrupt,
        fmt::format("the heads of layers are {}: each of {} layers needs a multiple of the "
                    "{} of keys",
                    fmt::join(c.layer_heads, ", "), c.num_hidden_layers, c.num_kv_heads)};
  }
  if (c.head_dim % 2 != 0)
    return Error{Code::kCorrupt, fmt::format("head_dim is {}: it must be even", c.head_dim)};
  if (!(c.rms_norm_eps >= 0) || !std::isfinite(c.rms_norm_eps)) {
    return Error{Code::kCorrupt,
                 fmt::format("rms_norm_eps is {}: it must be a number from 0 up", c.rms_norm_eps)};
  }
  constexpr std::array<std::string_view, 6> kActivations = {
      "silu", "swish", "gelu", "gelu_new", "gelu_pytorch_tanh", "relu"};
  if (std::find(kActivations.begin(), kActivations.end(), c.hidden_act) == kActivations.end()) {
    return Error{Code::kUnsupported,
                 fmt::format("hidden_act '{}' is not implemented (these are: {})",
                             base::Printable(c.hidden_act), fmt::join(kActivations, ", "))};
  }
  if (!std::isfinite(c.query_pre_attn_scalar) || c.query_pre_attn_scalar <= 0) {
    return Error{Code::kCorrupt,
                 fmt::format("query_pre_attn_scalar is {}: it must be a number above 0",
                             c.query_pre_attn_scalar)};
  }
  for (const auto& [field, cap] : {std::pair{"attn_logit_softcapping", c.attn_logit_softcapping},
                                   {"final_logit_softcapping", c.final_logit_softcapping}}) {
    if (!std::isfinite(cap) || cap < 0)
      return Error{Code::kCorrupt,
                   fmt::format("{} is {}: it must be a number above 0, or 0 or null for no cap",
                               field, cap)};
  }
  if (static_cast<int64_t>(c.layer_types.size()) != c.num_hidden_layers) {
    return Error{Code::kCorrupt, fmt::format("layer_types has {} entries for {} layers",
                                             c.layer_types.size(), c.num_hidden_layers)};
  }
  const bool slides = std::find(c.layer_types.begin(), c.layer_types.end(), LayerType::kSliding) !=
                      c.layer_types.end();
  if (c.sliding_window < 0 || (slides && c.sliding_window == 0)) {
    return Error{
        Code::kCorrupt,
        fmt::format("sliding_window is {}: windowed layers need a positive number of tokens",
                    c.sliding_window)};
  }
  return CheckExperts(c);
}

}  // namespace vllm::weights
