// From a request's SamplingParams to what the sampler on the device reads: a row of parameters a
// step, and the words of its slot that are written once, at admission.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "vllm/engine/sampling_params.h"
#include "vt/ir/sampling.h"

namespace vllm::engine {

struct SamplerSettings {
  // All but slot, position, length, choice, forced and logprobs, which change from step to step.
  vt::ir::SamplingRow row;
  std::vector<int32_t> words;  // mask and lists: words of the slot from words_offset on; often none
  int64_t words_offset = 0;
  bool needs_history = false;  // penalties, bad words, DRY: the tokens so far must be in the slot
  int64_t history_offset = 0;  // words
};

// `seed`: the request's, or drawn. `end_ids`: banned until min_tokens, unless ignore_eos leaves
// them as they are. Errors: kInvalidArgument when biases and word lists together are too long.
base::Result<SamplerSettings> MakeSamplerSettings(const SamplingParams& params, uint64_t seed,
                                                  int64_t prompt_length,
                                                  std::span<const int32_t> end_ids,
                                                  const vt::ir::SamplerLayout& layout);

}  // namespace vllm::engine
