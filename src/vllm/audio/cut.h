// Where long sound is taken apart, so that hardly a word is.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace vllm::audio {

// The end of each piece of `samples`, in samples; the last is their count. Each but the last has
// between nine tenths of `most` and `most`, and ends where the sound is quietest there.
// REQUIRES: samples and most are positive.
std::vector<int64_t> CutWhereQuiet(std::span<const float> samples, int64_t most);

}  // namespace vllm::audio
