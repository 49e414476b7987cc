// Rope settings of config.json, in each of the ways that published files write them. Used by
// config_json.cc alone.
#pragma once

#include <boost/json/object.hpp>
#include <string_view>

#include "base/result.h"
#include "vllm/weights/config.h"

namespace vllm::weights {

// Fills config.rope and config.rope_local from the text configuration `o`. REQUIRES family,
// head_dim and max_position_embeddings to be set.
base::Status ReadRope(const boost::json::object& o, Config& config);

// Types, ranges and defaults that don't depend on the file's kind. `where` names the field or key
// prefix in errors.
base::Status CheckRope(std::string_view where, int64_t max_position_embeddings, Rope& rope);

}  // namespace vllm::weights
