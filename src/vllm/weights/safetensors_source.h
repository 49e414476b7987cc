// Internal to the room: the TensorSource of a folder with config.json and *.safetensors.
#pragma once

#include "vllm/weights/tensor_source.h"

namespace vllm::weights {

base::Result<std::unique_ptr<TensorSource>> OpenSafetensorsSource(const std::string& path);

}  // namespace vllm::weights
