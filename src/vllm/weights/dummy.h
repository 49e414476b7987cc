// Random weights: bytes for a tensor's name.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "vt/ir/dtype.h"

namespace vllm::weights {

// Fills `out` with `out.size() / block bytes` random blocks of `dtype`, the same for the same name
// and seed on every machine. Values have mean about `mean` (plain types only; blocks have mean 0)
// and deviation about 0.02; no NaN, no infinity. REQUIRES: dtype is a floating type or a quantised
// weight format.
void FillRandom(std::string_view name, uint64_t seed, vt::ir::DType dtype, float mean,
                std::span<std::byte> out);

}  // namespace vllm::weights
