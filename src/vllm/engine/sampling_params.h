// What a request may ask of the sampler and of the end of its text. Names and defaults are vLLM's;
// DRY and XTC as in llama.cpp. The order in which they act stands in vt/ir/sampling.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"

namespace vllm::engine {

struct SamplingParams {
  float temperature = 1.0f;   // 0: greedy
  int32_t top_k = 0;          // 0 or -1: all
  float top_p = 1.0f;         // (0, 1]
  float min_p = 0.0f;         // [0, 1]
  float typical_p = 1.0f;     // (0, 1]; 1: off
  float top_n_sigma = -1.0f;  // keeps scores within n standard deviations of the best; <= 0: off

  float repetition_penalty = 1.0f;  // > 0; of prompt and output
  float presence_penalty = 0.0f;    // [-2, 2]; of the output alone, like frequency
  float frequency_penalty = 0.0f;

  float dry_multiplier = 0.0f;  // 0: off
  float dry_base = 1.75f;
  int32_t dry_allowed_length = 2;
  int32_t dry_penalty_last_n = -1;         // -1: the whole context; 0: off
  std::vector<int32_t> dry_breakers = {};  // token ids that end a repeated sequence
  float xtc_probability = 0.0f;            // [0, 1]; 0: off
  float xtc_threshold = 0.1f;

  std::vector<std::pair<int32_t, float>> logit_bias = {};  // (token id, [-100, 100])
  std::vector<int32_t> allowed_token_ids = {};             // empty: all
  std::vector<std::vector<int32_t>> bad_words = {};  // token sequences that may not be completed

  int64_t max_tokens = 256;
  int64_t min_tokens = 0;  // no end token, stop id or stop string counts before
  std::vector<int32_t> stop_token_ids = {};
  bool ignore_eos = false;

  std::optional<uint64_t> seed = {};  // none: 64 bits are drawn at admission
  int32_t n = 1;                      // choices of one prompt
  int32_t logprobs = -1;         // -1: none; 0..kMaxLogprobs: the token's and so many of the best
  int32_t prompt_logprobs = -1;  // likewise for every prompt token but the first

  // Of the text, judged by OutputText and not by the engine:
  std::vector<std::string> stop = {};
  bool include_stop_str_in_output = false;
  bool skip_special_tokens = true;
};

inline constexpr int32_t kMaxLogprobs = 20;
inline constexpr int32_t kMaxChoices = 128;

// Every range above, and ids inside [0, vocabulary). Errors: kInvalidArgument, the sentence begins
// with the field's name: "top_p must be in (0, 1], got 0".
base::Status Validate(const SamplingParams& params, int64_t vocabulary);

}  // namespace vllm::engine
