// The checks that config.json and GGUF metadata share. Used by config_*.cc alone.
#pragma once

#include <string_view>

#include "base/result.h"
#include "vllm/weights/config.h"

namespace vllm::weights {

// True for an option's name that, by its wording, changes what is computed: rope, scale, softcap,
// multiplier, norm, act, expert, window, bias and a few more. A file that sets such an option,
// unknown to us, to anything but null, false, zero or empty is refused: wrong mathematics gives
// plausible text. All other unknown options are ignored.
bool SoundsLikeMathematics(std::string_view option);

// Sizes in range and fitting together, layer_types one a layer, activation known. Errors name
// Hugging Face's field.
base::Status CheckConfig(const Config& config);

}  // namespace vllm::weights
