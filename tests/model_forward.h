// Runs the tiny checkpoints of model_golden.h through the engine on the CPU.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tests/model_golden.h"
#include "vllm/engine/llm.h"

namespace vllm::testing {

// f32 weights and KV, logits of every position.
engine::LoadOptions Float32Options(const std::string& path, int64_t max_model_len,
                                   int64_t max_num_seqs = 1);
// Null, and a failed test, where loading with these options fails.
std::unique_ptr<engine::Llm> LoadFloat32(const std::string& path, int64_t max_model_len,
                                         int64_t max_num_seqs = 1);

// The same of a golden on a GPU, with values of `dtype` and a cache of what goes with them.
engine::LoadOptions CardOptions(const ModelGolden& golden, const std::string& device,
                                const std::string& dtype, int64_t max_model_len = 64);
// The worst error of a golden's prompts there: a prefill, chunks, single tokens, in turn. Infinite,
// and a failed test, where loading fails.
double WorstErrorOn(const ModelGolden& golden, const std::string& device, const std::string& dtype);

// Logits of every token of `ids` in sequence slot 0, cut into steps of `cuts` tokens (the last one
// repeats).
std::vector<float> Forward(engine::Llm& llm, std::span<const int32_t> ids,
                           std::span<const int64_t> cuts);

}  // namespace vllm::testing
