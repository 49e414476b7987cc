// How files describe Gemma 4 (text): what configurations and tensors say in other words.
#pragma once

#include "vllm/weights/family.h"

namespace vllm::models::gemma4 {

// Options. Heads are those of layers without a window.
inline constexpr const char *kHeadDim = "global_head_dim", *kKvHeads = "num_global_key_value_heads",
                            *kShared = "num_kv_shared_layers", *kKeyIsValue = "attention_k_eq_v",
                            *kInputs = "hidden_size_per_layer_input",
                            *kInputVocabulary = "vocab_size_per_layer_input",
                            *kWide = "use_double_wide_mlp";

inline bool IsFull(const weights::Config& c, int64_t layer) { return c.WindowOf(layer) == 0; }
// The layer whose keys and values this one reads: itself, or the last before the shared ones that
// is of its kind; below 0 where there is none.
int64_t KvLayer(const weights::Config& c, int64_t layer);

weights::Family Describe();  // without its function

}  // namespace vllm::models::gemma4
