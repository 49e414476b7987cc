// How files describe and store Gated DeltaNet and gated attention.
#pragma once

#include <boost/json/object.hpp>

#include "base/result.h"
#include "vllm/weights/config.h"

namespace vllm::weights {
class GgufReader;
class LayerTensors;
}  // namespace vllm::weights

namespace vllm::models {

// For weights::Family: Config::delta, layer_types and attention_gate.
base::Status ReadDeltaNet(const boost::json::object& o, weights::Config& config);
void ReadDeltaNetKeys(weights::GgufReader& reader, weights::Config& config);

// self_attn.q_proj (a head's query, then its gate) -> q_proj and q_gate
// linear_attn.in_proj_qkvz and in_proj_ba (by key head) -> in_proj_qkv, in_proj_z, in_proj_b,
//     in_proj_a
// linear_attn.conv1d.weight [C, 1, W] -> [C, W]
base::Status MakeDeltaNetTensors(const weights::Config& config, int64_t layer,
                                 weights::LayerTensors& t);

}  // namespace vllm::models
