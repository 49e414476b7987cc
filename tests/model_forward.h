// Runs the tiny checkpoints of model_golden.h through the engine on the CPU.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "vllm/engine/llm.h"

namespace vllm::testing {

// f32 weights and KV, logits of every position.
engine::LoadOptions Float32Options(const std::string& path, int64_t max_model_len,
                                   int64_t max_num_seqs = 1);
// Null, and a failed test, where loading with these options fails.
std::unique_ptr<engine::Llm> LoadFloat32(const std::string& path, int64_t max_model_len,
                                         int64_t max_num_seqs = 1);

// Logits of every token of `ids` in sequence slot 0, cut into steps of `cuts` tokens (the last one
// repeats).
std::vector<float> Forward(engine::Llm& llm, std::span<const int32_t> ids,
                           std::span<const int64_t> cuts);

}  // namespace vllm::testing
