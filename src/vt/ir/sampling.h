// How a token is chosen: the meaning of the ops `sample`, `top_logprobs` and `token_feed`, and the
// slow reference of the first two. Every backend must choose the same token from the same logits.
//
// A row of logits passes, in this order:
//    1. mask: ids without their bit are gone.
//    2. bias, also at temperature 0. (min_tokens is a bias of -inf until a position.)
//    3. bad words: the last id of a sequence is gone when the ids before it are the history's end.
//    4. repetition penalty, of prompt and output: divides positive logits, multiplies others.
//    5. frequency (times the count) and presence penalty, of the output alone: subtracted.
//    6. DRY: an id that would continue a repeat of n >= allowed_length tokens loses
//       multiplier * base^(n - allowed_length). n is the longest sequence, within the last last_n
//       tokens, that ends the history, stood before that id earlier and holds no breaker. Breakers
//       themselves are spared. (As in llama.cpp.)
// At temperature 0 the best is taken. Otherwise scores = logits / temperature, and of the softmax
// of what is left
//    7. top-n-sigma keeps scores of at least best - n * standard deviation;
//    8. min-p keeps what is at least min_p times as probable as the best;
//    9. top-k keeps the k best;
//   10. typical-p keeps the ids whose surprise is nearest to the entropy, until their sum reaches
//   p;
//   11. top-p keeps the best until their sum reaches p (the one that crosses p stays);
//   12. XTC, by a coin of its own: of the ids of at least the threshold's probability all but the
//       least probable go.
// Probabilities are renormalised before 10, 11 and 12; each step keeps at least one id.
//   13. The token is the arg-max of score + Gumbel noise over what is left: an exact draw from its
//       softmax. Noise and coin depend on (seed, choice, output position, vocabulary id) alone:
//       never on the batch.
// Equal scores are ordered by id, lower first. NaN counts as -inf; a logit of +inf wins outright.
// When 1 to 6 leave nothing, the best logit that the mask allows is taken; the lowest allowed id
// when all of those are -inf, and 0 when the mask allows nothing.
// Sums and products meet their threshold already when 1e-6 short of it: f32's own rounding decides
// nothing there.
//
// A row with a forced token >= 0 gives that token and writes nothing (a prompt being scored).
// Otherwise a row with a slot writes the token as last_token and, when `length` is inside it, as
// history[length].
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "vt/ir/sampler_layout.h"

namespace vt::ir {

inline constexpr int kBestTokens = 20;  // that top_logprobs can list
// Of a row of top_logprobs' values: the token's log-probability and rank, then the best ones'.
inline constexpr int kLogprobValues = 2 + kBestTokens;

// A row of `params`. Packed, all zero (padding) means greedy, with no slot and no
// log-probabilities. Integers are bit patterns in f32 words: copy rows as bytes only.
struct SamplingRow {
  float temperature = 0;  // not positive: greedy
  float top_k = 0;        // below 1, or the vocabulary and more: all
  float top_p = 1;        // outside (0, 1): all
  float min_p = 0;        // not positive: all
  uint64_t seed = 0;
  uint32_t position = 0;  // of the drawn token in the output
  uint32_t choice = 0;    // index among the request's n choices

  float typical_p = 1;           // outside (0, 1): all
  float top_n_sigma = 0;         // not positive: all
  float repetition_penalty = 1;  // not positive: 1
  float presence_penalty = 0;
  float frequency_penalty = 0;
  float dry_multiplier = 0;  // 0: off
  float dry_base = 1.75f;
  int32_t dry_allowed_length = 2;
  int32_t dry_last_n = -1;     // -1: the whole history; 0: off
  float xtc_probability = 0;   // not positive: off
  float xtc_threshold = 0.1f;  // above 0.5 nothing happens

  int32_t slot = -1;          // of the sampler's state; -1: none is read or written
  int32_t length = 0;         // tokens in the history before this draw
  int32_t prompt_length = 0;  // of them, the prompt's
  int32_t bias_words = 0;     // lengths of the slot's lists
  int32_t bad_word_words = 0;
  bool use_breakers = false;  // else nothing ends a repeat but the history's beginning
  bool use_mask = false;      // else all are allowed
  int32_t forced = -1;        // the token to give; -1: choose
  int32_t logprobs = -1;      // -1: none; else so many best ones (at most kBestTokens)

  bool operator==(const SamplingRow&) const = default;
};

// Where the fields stand in a packed row. Names with One hold the value plus 1.
enum SampleParam : int {
  kParamTemperature,
  kParamTopK,
  kParamTopP,
  kParamMinP,
  kParamSeed,  // two words, the low one first
  kParamPosition = kParamSeed + 2,
  kParamChoice,
  kParamTypicalP,
  kParamTopNSigma,
  kParamRepetition,
  kParamPresence,
  kParamFrequency,
  kParamDryMultiplier,
  kParamDryBase,
  kParamDryAllowedLength,
  kParamDryLastN,
  kParamXtcProbability,
  kParamXtcThreshold,
  kParamSlotOne,
  kParamLength,
  kParamPromptLength,
  kParamBiasWords,
  kParamBadWordWords,
  kParamUseBreakers,
  kParamUseMask,
  kParamForcedOne,
  kParamLogprobsOne,
  kParamsUsed
};
inline constexpr int kSampleParamCount = 32;  // words in a row; those past kParamsUsed are 0
static_assert(kParamsUsed <= kSampleParamCount);

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

// XTC's coin in (0, 1): lane 0 of Philox(counter = {0, position, choice, 1}, key = seed).
float Coin(uint64_t seed, uint32_t choice, uint32_t position);

// The highest value's index; ties to the lower; NaN never wins (0 when nothing does). REQUIRES:
// count >= 1.
int32_t ArgMax(const float* values, int64_t count);

// 1 / temperature, of a temperature that is not below 1e-6.
float InverseTemperature(const SamplingRow& row);

// What DRY takes from an id that would continue a repeat of `length` tokens.
float DryPenalty(const SamplingRow& row, int32_t length);

// --- the reference: plain, in doubles, allocates freely. `slot` is the row's words of the state,
// nullptr without one; `layout` is theirs.

// Logits after steps 1 to 6.
std::vector<float> ProcessLogits(const float* logits, int64_t vocabulary, const SamplingRow& row,
                                 const int32_t* slot, const SamplerLayout& layout);
// Scores after steps 7 to 12; -inf where an id is gone. REQUIRES: a positive temperature, a finite
// best.
std::vector<float> FilterScores(const std::vector<float>& logits, const SamplingRow& row);
// All of it but the writing: the token.
int32_t SampleToken(const float* logits, int64_t vocabulary, const SamplingRow& row,
                    const int32_t* slot = nullptr, const SamplerLayout& layout = {});
// Writes what a drawn token leaves in its slot.
void RecordToken(const SamplingRow& row, const SamplerLayout& layout, int32_t token, int32_t* slot);

// A row of top_logprobs, of the raw logits: values[0] the token's log-probability, values[1] its
// rank (1: the best), then the row.logprobs best, falling, with their ids; the rest is -inf and -1.
// A row that wants none is left as it is. REQUIRES: values [kLogprobValues], ids [kBestTokens],
// token inside the vocabulary.
void TopLogprobs(const float* logits, int64_t vocabulary, const SamplingRow& row, int32_t token,
                 float* values, int32_t* ids);

}  // namespace vt::ir
