// How a token is drawn: the meaning of the `sample` and `argmax` ops, in scalar code that the
// interpreter and the CPU backend share. Every backend must draw the same token from the same
// logits.
//
//   1. temperature 0: the arg-max. Otherwise scores = logits / temperature.
//   2. top-k keeps the k highest scores; then top-p keeps the shortest prefix, in falling order, of
//   the renormalised
//      probabilities whose sum reaches p (the token that crosses p stays); then min-p keeps what is
//      at least min_p times as probable as the best.
//   3. The drawn token is the arg-max of score + Gumbel noise over the kept ones, which is an exact
//   draw from their
//      softmax. The noise depends on (seed, choice, output position, vocabulary id) alone: never on
//      the batch.
// Equal scores are ordered by id, lower first. NaN counts as -inf; a score of +inf wins outright.
#pragma once

#include <array>
#include <cstdint>

namespace vt::ir {

inline constexpr int kSampleParamCount = 12;  // f32 values in a row of params

// A row of `params`: [temperature, top_k, top_p, min_p, seed low, seed high, position, choice, 0,
// 0, 0, 0]. Seed, position and choice are u32 bit patterns in f32 slots: copy them as bytes only.
// All zero (padding) means greedy.
struct SamplingRow {
  float temperature = 0;
  float top_k = 0;  // 0 (or the vocabulary and more): all
  float top_p = 1;  // 1 and more, or not positive: all
  float min_p = 0;  // 0: all
  uint64_t seed = 0;
  uint32_t position = 0;  // of the drawn token in the output
  uint32_t choice = 0;    // index among the request's n choices
};
void PackSamplingRow(const SamplingRow& row, float* params);
SamplingRow UnpackSamplingRow(const float* params);

// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011).
std::array<uint32_t, 4> Philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// 32 random bits to the open interval (0, 1): 23 bits and a half, exact in f32, so the logarithms
// below are finite.
inline float Uniform(uint32_t bits) {
  return (static_cast<float>(bits >> 9) + 0.5f) * (1.0f / 8388608.0f);
}

// -log(-log(u)) with u from lane id % 4 of Philox(counter = {id / 4, position, choice, 0}, key =
// seed).
float Gumbel(uint64_t seed, uint32_t choice, uint32_t position, uint32_t vocabulary_id);

// The highest value's index; ties to the lower; NaN never wins (0 when nothing does). REQUIRES:
// count >= 1.
int32_t ArgMax(const float* values, int64_t count);

int32_t SampleToken(const float* logits, int64_t vocabulary, const SamplingRow& row);

}  // namespace vt::ir
