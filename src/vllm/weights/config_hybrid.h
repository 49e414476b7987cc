// What config.json says of experts and of Gated DeltaNet layers.
#pragma once

#include <boost/json/object.hpp>
#include <string_view>

#include "base/result.h"
#include "vllm/weights/config.h"

namespace vllm::weights {

// Families whose layers are Gated DeltaNet but for every fourth or so.
bool IsHybrid(std::string_view family);
// Families whose layers may have experts.
bool HasExperts(std::string_view family);

// Whether `option` is one that ReadExperts reads for this family.
bool IsExpertOption(std::string_view family, std::string_view option);

// Config::experts and sparse_layers. REQUIRES the sizes and layer_types to be read.
base::Status ReadExperts(const boost::json::object& o, Config& config);
// Config::delta, layer_types and attention_gate. Does nothing for families that are not hybrid.
base::Status ReadDeltaNet(const boost::json::object& o, Config& config);

// What must hold of both, whatever they were read from.
base::Status CheckHybrid(const Config& config);

}  // namespace vllm::weights
