// What config.json says of experts.
#pragma once

#include <boost/json/object.hpp>
#include <string_view>

#include "base/result.h"
#include "vllm/weights/config.h"

namespace vllm::weights {

struct ExpertOptions;

// Whether `option` is one that ReadExperts reads.
bool IsExpertOption(const ExpertOptions& options, std::string_view option);

// Config::experts and sparse_layers, where the family has such. REQUIRES the sizes to be read.
base::Status ReadExperts(const boost::json::object& o, Config& config);

// What must hold of them, whatever they were read from.
base::Status CheckExperts(const Config& config);

}  // namespace vllm::weights
