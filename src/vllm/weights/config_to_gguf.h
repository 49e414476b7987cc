// Config -> GGUF metadata: what config_gguf.cc reads, in llama.cpp's keys, so that llama.cpp loads
// it too.
#pragma once

#include "base/result.h"
#include "vllm/weights/config.h"
#include "vllm/weights/gguf_writer.h"

namespace vllm::weights {

// GGUF's name of the architecture and its hyperparameters. Errors: kUnsupported for settings that
// GGUF has no field for, by name: a file that leaves them out would compute something else.
base::Status ConfigToGguf(const Config& config, GgufKeys& keys);

// Divisors of the rotary frequencies that GGUF keeps as a tensor, rope_freqs.weight: of Llama 3's
// scaling; else empty.
std::vector<float> RopeDivisors(const Config& config);

}  // namespace vllm::weights
