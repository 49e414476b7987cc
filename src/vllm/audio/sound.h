// Sound from files in memory: WAV, FLAC, Ogg, MP3 and whatever else libsndfile reads, of any rate
// and any number of channels, as mono at one rate. libsndfile and libsoxr are opened when the first
// sound comes: programs start without them.
#pragma once

#include <string_view>
#include <vector>

#include "base/result.h"

namespace vllm::audio {

inline constexpr int kRate = 16000;  // samples a second of what is decoded

// The mean of all channels, in about [-1, 1]. Errors: kInvalidArgument for what is empty, no sound,
// longer than `most_seconds` or no number; kUnavailable where a library is missing.
base::Result<std::vector<float>> Decode(std::string_view file, double most_seconds);

}  // namespace vllm::audio
