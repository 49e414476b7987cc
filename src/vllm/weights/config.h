// A model's configuration in one shape, whether it came from config.json or from GGUF metadata.
//
// Options that change the mathematics and are not implemented are refused by name (see
// config_json.cc for the rule), so that whoever reads a Config may trust it. Sizes are checked:
// positive, and so small that the product of any two fits in 64 bits many times over.
#pragma once

#include <boost/json/object.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "vt/ir/dtype.h"

namespace vllm::weights {

class GgufMetadata;

// Rotary position embedding. Names and meanings are those of Hugging Face's rope_parameters.
struct Rope {
  std::string type = "default";  // default, linear, dynamic, llama3, yarn, longrope
  double theta = 10000;
  double factor = 1;
  double low_freq_factor = 1;                    // llama3
  double high_freq_factor = 4;                   // llama3
  int64_t original_max_position_embeddings = 0;  // never 0 for dynamic, llama3, yarn
  double attention_factor = 0;                   // yarn; 0: derived from factor (and the mscales)
  double beta_fast = 32;                         // yarn
  double beta_slow = 1;                          // yarn
  double mscale = 0;                             // yarn; 0: not given
  double mscale_all_dim = 0;                     // yarn; 0: not given
  bool truncate = true;                          // yarn: the ramp's ends are rounded to whole pairs
  double partial_rotary_factor = 1;              // rotary dimensions / head_dim
  // longrope: divide frequency i by [i], in a context up to the original length and beyond it.
  std::vector<double> short_factor, long_factor;
  // GGUF's rope_freqs.weight (Llama 3 scaling worked out by the converter): divides frequency i by
  // [i]. Usually empty.
  std::vector<float> frequency_factors;
};

enum class LayerType : uint8_t { kFull, kSliding, kLinear };

// The experts of sparse layers: a router picks `per_token` of `count` gated MLPs for each token.
struct Experts {
  int64_t count = 0;  // 0: the model has none
  int64_t per_token = 0;
  int64_t intermediate_size = 0;
  int64_t shared_intermediate_size = 0;  // of the MLP that every token passes; 0: there is none
  bool normalise = true;                 // the weights of a token's experts sum to 1
  bool shared_gate = true;  // that MLP's share is the sigmoid of a projection; else one
  // How the router scores, where it is not by softmax over all experts (see vt::ir::RouterAttrs).
  bool sigmoid = false, root = false;
  bool bias = false;  // "mlp.gate.e_score_correction_bias", in choosing alone
  double scale = 1;
  double softcap = 0;  // of the router's logits; 0: none
  int64_t groups = 1, top_groups = 1;
};

// Gated DeltaNet (arXiv 2412.06464), the mathematics of LayerType::kLinear.
struct DeltaNet {
  int64_t k_heads = 0;  // 0: the model has no such layers
  int64_t v_heads = 0;  // a multiple of k_heads
  int64_t k_dim = 0, v_dim = 0;
  int64_t conv_width = 0;
  // Which key head value head h reads: h % k_heads (GGUF's converter of Qwen 3.5 reorders them so)
  // instead of h / (v_heads / k_heads).
  bool tiled = false;
  // The decay is stored as log(-A) (Hugging Face's A_log) instead of A (GGUF).
  bool log_a = true;
  int64_t channels() const { return 2 * k_heads * k_dim + v_heads * v_dim; }
};

// What the audio encoder of a model that hears takes and gives: pieces of sound of one length, as
// log-mel frames of 10 ms, and rows that stand for tokens.
struct Audio {
  int64_t mel_bins = 0;   // of a frame; 0: it hears nothing
  int64_t positions = 0;  // of a piece, of two frames each; shorter sound is followed by silence
  int64_t rows = 0;       // of a piece
  int32_t token = -1;     // whose place in the prompt a row takes
  std::string_view before = {};  // stands in front of a sound's tokens
  // The prompt that asks for a sound's words, of its place and of the language ("lang:en", or
  // nothing), as fmt writes formats.
  std::string_view transcription = {};

  int64_t frames() const { return 2 * positions; }
  int64_t fold() const { return positions / rows; }
  // What the encoder is given of a position t, padded with zeros: the frames 2 t - 2 .. 2 t + 2
  // and 1, or 0 where frame 2 t - 1 does not exist.
  int64_t row_width() const { return (5 * mel_bins + 1 + 31) / 32 * 32; }
};

struct Config {
  std::string architecture;  // "LlamaForCausalLM"; for GGUF the general.architecture
  std::string family;        // a Family's name (family.h): "llama", "qwen3_moe", "gemma3"
  bool from_gguf = false;

  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;  // of layers with a dense MLP; 0 where there are none
  int64_t num_hidden_layers = 0;
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  std::vector<int64_t> layer_heads;  // heads of each layer, where they differ; else empty
  int64_t HeadsOf(int64_t layer) const {
    return layer_heads.empty() ? num_heads : layer_heads[static_cast<size_t>(layer)];
  }
  int64_t vocab_size = 0;
  int64_t max_position_embeddings = 0;
  float rms_norm_eps = 1e-6f;
  std::string hidden_act = "silu";
  std::optional<bool> tie_word_embeddings;  // absent: tied where the checkpoint has no lm_head
  bool attention_bias =
      false;  // on q, k, v and o (Qwen 2 always has biases on q, k and v; it isn't said here)
  bool mlp_bias = false;

  Rope rope;        // of layers with full attention, and of all layers in families with one rope
  Rope rope_local;  // of sliding layers; differs from `rope` for Gemma 3
  bool rope_interleaved =
      false;  // pairs (2i, 2i+1) instead of (i, i + dim / 2): GGUF's llama architecture

  int64_t sliding_window = 0;          // tokens, the query's own included; 0: none
  std::vector<LayerType> layer_types;  // one a layer
  int64_t WindowOf(int64_t layer) const {
    return layer_types[static_cast<size_t>(layer)] == LayerType::kSliding ? sliding_window : 0;
  }

  std::vector<bool> unrotated_layers;  // one a layer: no rotary embedding; may be empty
  bool IsRotated(int64_t layer) const {
    return unrotated_layers.empty() || !unrotated_layers[static_cast<size_t>(layer)];
  }

  Audio audio;
  Experts experts;
  std::vector<bool> sparse_layers;  // one a layer: whether its MLP is the experts; may be empty
  bool IsSparse(int64_t layer) const {
    return !sparse_layers.empty() && sparse_layers[static_cast<size_t>(layer)];
  }
  DeltaNet delta;
  bool IsLinear(int64_t layer) const {
    return layer_types[static_cast<size_t>(layer)] == LayerType::kLinear;
  }
  // The attention's output is multiplied by the sigmoid of a projection beside the query's.
  bool attention_gate = false;
  // Layers after the last that only predict further tokens (GGUF's nextn_predict_layers): skipped.
  int64_t nextn_layers = 0;

  float attn_logit_softcapping = 0;   // 0: none
  float final_logit_softcapping = 0;  // 0: none
  double query_pre_attn_scalar =
      0;  // scores are scaled by 1 / sqrt of this; head_dim where a family has none
  float norm_weight_offset =
      0;  // 1 for Gemma, Qwen3-Next and Qwen 3.5 in safetensors; GGUF's converter has added it

  // A family's own options (Family::options), by config.json's name.
  std::map<std::string, double, std::less<>> options;
  // REQUIRES: the family lists it.
  double Option(std::string_view name) const { return options.find(name)->second; }
  int64_t IntOption(std::string_view name) const { return static_cast<int64_t>(Option(name)); }

  std::optional<int32_t> bos_token_id;
  std::vector<int32_t> eos_token_ids;  // config.json's and generation_config.json's
  vt::ir::DType dtype =
      vt::ir::DType::kF32;  // torch_dtype; for GGUF that of most matrices is in the tensors

  boost::json::object
      raw;  // the text part of config.json, for what a family needs beyond this; empty for GGUF
};

// From a parsed config.json. `generation` is generation_config.json's object or null.
// Errors name the field: kCorrupt for wrong types and impossible sizes, kUnsupported for what isn't
// implemented.
base::Result<Config> ConfigFromJson(const boost::json::value& config,
                                    const boost::json::value& generation);

// From a directory's config.json and generation_config.json (optional). Errors name the file.
base::Result<Config> ConfigFromDirectory(const std::string& directory);

// Shape (outermost first) of a GGUF tensor by its GGUF name; empty when the file hasn't it.
using GgufShapeOf = std::function<std::vector<int64_t>(const std::string& gguf_name)>;

// From GGUF metadata. Errors name the key.
base::Result<Config> ConfigFromGguf(const GgufMetadata& metadata, const GgufShapeOf& shape_of);

}  // namespace vllm::weights
