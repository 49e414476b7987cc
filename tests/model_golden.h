// Tiny checkpoints with transformers' fp32 logits (tests/goldens/models, made by
// tools/make_model_goldens.py).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace vllm::testing {

struct ModelGolden {
  std::string name;
  std::string path;  // of the checkpoint
  int64_t vocab = 0;
  std::vector<std::vector<int32_t>> prompts;
  std::vector<std::vector<float>> logits;  // [prompt][position * vocab + id]
  double bf16_error = 0;  // of transformers in bfloat16, by the measure below; 0: not known
  bool context_is_prompt_length =
      false;  // dynamic rope: load with max_model_len = the prompt's length
};

std::string GoldenFolder();
std::vector<std::string> GoldenNames();  // sorted
// Fails the running test and returns an empty golden where files are missing or of a wrong size.
ModelGolden LoadGolden(const std::string& name);

// The design's measure: the largest over positions of max|a - b| / max|b|. Infinite for NaN or
// unequal sizes.
double RelativeError(std::span<const float> a, std::span<const float> b, int64_t vocab);

}  // namespace vllm::testing
