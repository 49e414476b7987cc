// A model family as files describe it: what it is called, what a configuration leaves out, which
// options it reads beyond the common ones, and how its tensors are named and stored. A family's own
// file in models/ fills this in and registers it (VLLM_MODEL_FAMILY); nothing here lists families.
#pragma once

#include <boost/json/object.hpp>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "vllm/weights/config.h"
#include "vt/ir/graph.h"

namespace vt::ir {
class Builder;
}

namespace vllm::weights {

class GgufReader;    // gguf_reader.h
class LayerTensors;  // virtual_tensors.h

// What a family's function is given beside the builder.
struct BuildContext {
  const Config& config;
  int64_t max_model_len;  // tokens; dynamic rope scaling depends on it
};
// Emits the forward pass and returns the logits [O, vocab]. Problems go to Builder::Fail.
using BuildFunction = vt::ir::ValueId (*)(vt::ir::Builder& b, const BuildContext& context);

// A number (true and false are 1 and 0) that a family reads: Config::Option(json) gives it.
struct Option {
  std::string_view json;       // in config.json
  std::string_view gguf = {};  // metadata key after "<architecture>."; empty: GGUF has none
  std::optional<double> fallback = std::nullopt;  // where the file has none; absent: it must have
  double least = 0, most = 1e9;
};

// One tensor's name in two places; without ".weight" or ".bias" it is both.
struct NamePair {
  std::string_view gguf, hf;
};

// Which layers attend through a window of sliding_window tokens, where the file doesn't list
// layer_types.
enum class Windows : uint8_t {
  kNone,      // none; a file that sets a window is refused
  kAll,       // all
  kPeriod,    // all but every window_period-th
  kFromLayer  // those from max_window_layers on
};

// Experts as config.json describes them; see Config::experts.
struct ExpertOptions {
  Experts defaults;
  // Every layer has them, and the weights of a token's sum to 1: the file has no say in it.
  bool every_layer = false;
  bool size_is_intermediate = false;  // moe_intermediate_size is called intermediate_size
  // DeepSeek's words: n_routed_experts, n_shared_experts (as many times moe_intermediate_size),
  // first_k_dense_replace, n_group, topk_group, routed_scaling_factor.
  bool deepseek = false;
};

struct Family {
  std::string_view name;
  std::string_view architecture;  // of the text model: "LlamaForCausalLM"
  std::string_view model_type;
  std::string_view wider_architecture = {}, wider_type = {};  // with vision around it
  // general.architecture. Of families that share one, that which has experts if the file has.
  std::string_view gguf = {};

  // --- what config.json leaves out (transformers' defaults) and which common options may be set
  int64_t heads = 0, vocab_size = 0;  // 0: the file must say
  int64_t kv_heads = 0;               // 0: as many as heads
  int64_t head_dim = 0;               // 0: hidden_size / heads
  bool dense = true;                  // some layer reads intermediate_size, so the file must say it
  int64_t max_position_embeddings = 2048;
  std::string_view activation_key = "hidden_act", activation = "silu";
  std::string_view eps_key = "rms_norm_eps";
  double eps = 1e-6;
  float norm_weight_offset = 0;  // what norms add to a weight that safetensors store
  bool tied = false;             // where neither configuration nor tensors say
  bool takes_attention_bias = false, takes_mlp_bias = false;
  bool attention_bias = false;  // where the file doesn't say
  double rope_theta = 1e4, partial_rotary_factor = 1;
  double local_rope_theta = 1e4;
  bool own_local_rope = false;    // sliding layers rotate by settings of their own, unscaled
  bool interleaved = false;       // pairs (2i, 2i+1) are rotated
  bool gguf_interleaved = false;  // GGUF's converter has put rows of q and k in that order
  Windows windows = Windows::kNone;
  int64_t window_period = 0, sliding_window = 0, gguf_sliding_window = 0;
  bool use_sliding_window = true;  // the option of that name
  bool linear_layers = false;      // layer_types may say linear_attention
  std::optional<ExpertOptions> experts = std::nullopt;

  // Its graph ends in hidden states [O, D] (marked as hidden), or in scores of classes, and not in
  // logits. Tokens see those behind them: a text goes through it in one piece.
  bool encoder = false;

  // Of models that hear: the encoder's graph, of Config::audio, which ends in the rows [O, hidden].
  BuildFunction build_media = nullptr;
  // Renders conversations where the files have no template.
  std::string_view chat_template = {};

  // --- what is its own
  std::vector<Option> options = {};
  // Options (and metadata keys) that `read_json` (`read_gguf`) reads or that don't matter, so that
  // they are not refused as unknown mathematics.
  std::vector<std::string_view> known = {};
  // Before anything is read: says in common words what the file says in others.
  void (*rewrite_json)(boost::json::object& o) = nullptr;
  // After all common options and `options` are read.
  base::Status (*read_json)(const boost::json::object& o, Config& config) = nullptr;
  // Then of the whole file, where the text model is but a part of it.
  base::Status (*read_whole_json)(const boost::json::object& whole, Config& config) = nullptr;
  void (*read_gguf)(GgufReader& reader, Config& config) = nullptr;

  // --- tensors
  std::string_view layers = "model.layers.";  // what precedes a layer's number
  // Of a layer and of the whole file; before the common ones.
  std::vector<NamePair> names = {}, file_names = {};
  // Parts of stored names -> ours, in turn: {".block_sparse_moe.", ".mlp."}; "^part" is the begin.
  std::vector<std::pair<std::string_view, std::string_view>> renames = {};
  // Stored tensors whose name ends in one of these are not needed.
  std::vector<std::string_view> ignored = {};
  // Makes what the graph asks for of a layer out of what is stored. Experts need none.
  base::Status (*make_tensors)(const Config& config, int64_t layer, LayerTensors& t) = nullptr;
  // Whether vllm-quantize can write it from safetensors: config_to_gguf.h knows its keys.
  bool writes_gguf = false;

  BuildFunction build = nullptr;  // set by the registration
};

// --- the registry: filled during static initialisation, read-only afterwards
void RegisterFamily(Family family);
const Family* FindFamily(std::string_view name);  // null: there is none
std::vector<const Family*> Families();            // by name
// REQUIRES: registered. An unknown family is one without names and experts.
const Family& FamilyOf(const Config& config);

// Every tensor (canonical name -> shape, outermost first) that a checkpoint of this configuration
// has, as its family's graph asks for them. The head is there unless the configuration says that it
// is tied. Errors: the graph's.
base::Result<std::map<std::string, std::vector<int64_t>>> ExpectedTensors(const Config& config);

}  // namespace vllm::weights
