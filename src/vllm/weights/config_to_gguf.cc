#include "vllm/weights/config_to_gguf.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/strings.h"
#include "vllm/weights/family.h"

namespace vllm::weights {
namespace {

using base::Code;
using base::Error;
using base::Status;

// The attention factor that YaRN has by itself.
double YarnMagnitude(double factor, double mscale) {
  return factor <= 1 ? 1 : 0.1 * mscale * std::log(factor) + 1;
}

class Writer {
 public:
  Writer(const Config& config, GgufKeys& keys)
      : c_(config), k_(keys), architecture_(c_.family == "mistral" ? "llama" : c_.family) {}

  Status Write() {
    if (!FamilyOf(c_).writes_gguf) {
      return Error{Code::kUnsupported,
                   fmt::format("quantising {} from safetensors is not implemented; convert it to "
                               "GGUF first",
                               c_.family)};
    }
    k_.String("general.architecture", architecture_);
    Sizes();
    for (const Status& status : {Scores(), Windows(), RopeKeys()}) {
      if (!status) return status;
    }
    return {};
  }

 private:
  std::string Key(std::string_view name) const { return fmt::format("{}.{}", architecture_, name); }
  void U32(std::string_view name, int64_t value) {
    k_.U32(Key(name), static_cast<uint32_t>(value));
  }
  void F32(std::string_view name, double value) { k_.F32(Key(name), static_cast<float>(value)); }
  Error No(std::string_view what) const {
    return {Code::kUnsupported, fmt::format("GGUF has no field for {} of {}", what, c_.family)};
  }
  bool gemma() const { return c_.family == "gemma2" || c_.family == "gemma3"; }

  void Sizes() {
    U32("block_count", c_.num_hidden_layers);
    U32("context_length", c_.max_position_embeddings);
    U32("embedding_length", c_.hidden_size);
    U32("feed_forward_length", c_.intermediate_size);
    U32("attention.head_count", c_.num_heads);
    U32("attention.head_count_kv", c_.num_kv_heads);
    U32("attention.key_length", c_.head_dim);
    U32("attention.value_length", c_.head_dim);
    U32("vocab_size", c_.vocab_size);
    F32("attention.layer_norm_rms_epsilon", static_cast<double>(c_.rms_norm_eps));
  }

  // Readers know the scale of scores from the architecture alone.
  Status Scores() {
    const bool largest = (c_.family == "gemma2" && c_.num_hidden_layers == 46) ||
                         (c_.family == "gemma3" && c_.num_hidden_layers == 62);
    const int64_t implied = largest ? c_.hidden_size / c_.num_heads : c_.head_dim;
    if (c_.query_pre_attn_scalar != static_cast<double>(implied)) {
      return No(fmt::format("query_pre_attn_scalar = {} (readers take {})",
                            c_.query_pre_attn_scalar, implied));
    }
    if (c_.family == "gemma3" && c_.attn_logit_softcapping != 0)
      return No("attn_logit_softcapping");
    if (c_.attn_logit_softcapping != 0) F32("attn_logit_softcapping", c_.attn_logit_softcapping);
    if (c_.final_logit_softcapping != 0) F32("final_logit_softcapping", c_.final_logit_softcapping);
    return {};
  }

  Status Windows() {
    const bool slides = std::find(c_.layer_types.begin(), c_.layer_types.end(),
                                  LayerType::kSliding) != c_.layer_types.end();
    if (!slides) return {};
    if (!gemma()) {
      // A window that no context outgrows is none.
      if (c_.sliding_window >= c_.max_position_embeddings) return {};
      return No(fmt::format("sliding_window = {}", c_.sliding_window));
    }
    U32("attention.sliding_window", c_.sliding_window);
    const int64_t period = c_.family == "gemma2" ? 2 : 6;
    for (int64_t i = 0; i < c_.num_hidden_layers; ++i) {
      const bool full = c_.layer_types[static_cast<size_t>(i)] == LayerType::kFull;
      if (full == ((i + 1) % period == 0)) continue;
      if (c_.family == "gemma2") return No("layer_types");
      std::vector<int32_t> pattern;  // not the architecture's own
      for (const LayerType t : c_.layer_types) pattern.push_back(t == LayerType::kSliding);
      k_.Bools(Key("attention.sliding_window_pattern"), pattern);
      return {};
    }
    return {};
  }

  Status RopeKeys() {
    const Rope& r = c_.rope;
    if (r.partial_rotary_factor != 1) return No("partial_rotary_factor");
    F32("rope.freq_base", r.theta);
    U32("rope.dimension_count", c_.head_dim);
    if (c_.family == "gemma3") {
      F32("rope.freq_base_swa", c_.rope_local.theta);
      if (c_.rope_local.type != "default") return No("scaled rotation of sliding layers");
    }
    if (r.type == "default" || r.type == "llama3") {
      // Llama 3's is a tensor.
      return r.type == "llama3" && architecture_ != "llama" ? Status(No("rope_type = llama3"))
                                                            : Status();
    }
    if (r.type != "linear" && r.type != "yarn") return No(fmt::format("rope_type = {}", r.type));
    k_.String(Key("rope.scaling.type"), r.type);
    F32("rope.scaling.factor", r.factor);
    if (r.type == "linear") return {};
    if (!r.truncate) return No("rope_parameters.truncate = false");
    U32("rope.scaling.original_context_length", r.original_max_position_embeddings);
    F32("rope.scaling.yarn_beta_fast", r.beta_fast);
    F32("rope.scaling.yarn_beta_slow", r.beta_slow);
    // GGUF's factor comes on top of YaRN's own.
    const double own = YarnMagnitude(r.factor, 1);
    double whole = own;
    if (r.attention_factor > 0) {
      whole = r.attention_factor;
    } else if (r.mscale > 0 && r.mscale_all_dim > 0) {
      whole = YarnMagnitude(r.factor, r.mscale) / YarnMagnitude(r.factor, r.mscale_all_dim);
    }
    if (whole != own) F32("rope.scaling.yarn_attn_factor", whole / own);
    return {};
  }

  const Config& c_;
  GgufKeys& k_;
  std::string architecture_;
};

}  // namespace

Status ConfigToGguf(const Config& config, GgufKeys& keys) { return Writer(config, keys).Write(); }

std::vector<float> RopeDivisors(const Config& config) {
  const Rope& r = config.rope;
  std::vector<float> out;
  if (r.type != "llama3") return out;
  // Meta's reference: long wavelengths are divided by the factor, short ones kept, between them the
  // frequencies blend.
  const auto original = static_cast<double>(r.original_max_position_embeddings);
  for (int64_t i = 0; i < config.head_dim / 2; ++i) {
    const double frequency =
        std::pow(r.theta, -2.0 * static_cast<double>(i) / static_cast<double>(config.head_dim));
    const double wavelength = 2 * std::numbers::pi / frequency;
    const double kept = std::clamp(
        (original / wavelength - r.low_freq_factor) / (r.high_freq_factor - r.low_freq_factor), 0.0,
        1.0);
    out.push_back(static_cast<float>(1 / ((1 - kept) / r.factor + kept)));
  }
  return out;
}

}  // namespace vllm::weights
