// Log-mel spectrograms as Whisper's encoders take them: windows of 25 ms every 10 ms at 16 kHz,
// Slaney's mel filters, and of each sound the 80 dB below its loudest place.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace vllm::audio {

inline constexpr int64_t kHop = 160;  // samples a frame

// [frames, bins] of `samples` at kRate with silence behind them: samples / kHop frames, rounded up
// to a multiple of `piece`. REQUIRES: samples, bins and piece are positive.
std::vector<float> LogMel(std::span<const float> samples, int64_t bins, int64_t piece);

}  // namespace vllm::audio
