// Random weights: a checkpoint's tensors by name and shape, and their bytes, from the configuration
// alone.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "vllm/weights/config.h"
#include "vt/ir/dtype.h"

namespace vllm::weights {

// Every tensor (canonical name -> shape, outermost first) that a checkpoint of this configuration
// has, experts and the like as models ask for them (virtual_tensors.h). The head is there unless
// the configuration says that it is tied (saying nothing means tied for Gemma alone, as in
// transformers).
std::map<std::string, std::vector<int64_t>> ExpectedTensors(const Config& config);

// Fills `out` with `out.size() / block bytes` random blocks of `dtype`, the same for the same name
// and seed on every machine. Values have mean about `mean` (plain types only; blocks have mean 0)
// and deviation about 0.02; no NaN, no infinity. REQUIRES: dtype is a floating type or a quantised
// weight format.
void FillRandom(std::string_view name, uint64_t seed, vt::ir::DType dtype, float mean,
                std::span<std::byte> out);

}  // namespace vllm::weights
