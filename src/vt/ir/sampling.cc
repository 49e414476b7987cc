#include "vt/ir/sampling.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace vt::ir {
namespace {

// The one place that says which field is which word.
template <typename Row, typename Visit>
void VisitWords(Row& row, Visit visit) {
  visit(kParamTemperature, row.temperature);
  visit(kParamTopK, row.top_k);
  visit(kParamTopP, row.top_p);
  visit(kParamMinP, row.min_p);
  visit(kParamSeed, row.seed);
  visit(kParamPosition, row.position);
  visit(kParamChoice, row.choice);
  visit(kParamTypicalP, row.typical_p);
  visit(kParamTopNSigma, row.top_n_sigma);
  visit(kParamRepetition, row.repetition_penalty);
  visit(kParamPresence, row.presence_penalty);
  visit(kParamFrequency, row.frequency_penalty);
  visit(kParamDryMultiplier, row.dry_multiplier);
  visit(kParamDryBase, row.dry_base);
  visit(kParamDryAllowedLength, row.dry_allowed_length);
  visit(kParamDryLastN, row.dry_last_n);
  visit(kParamXtcProbability, row.xtc_probability);
  visit(kParamXtcThreshold, row.xtc_threshold);
  visit(kParamSlotOne, row.slot);
  visit(kParamLength, row.length);
  visit(kParamPromptLength, row.prompt_length);
  visit(kParamBiasWords, row.bias_words);
  visit(kParamBadWordWords, row.bad_word_words);
  visit(kParamForcedOne, row.forced);
  visit(kParamLogprobsOne, row.logprobs);
}

bool HoldsOneMore(int word) {
  return word == kParamSlotOne || word == kParamForcedOne || word == kParamLogprobsOne;
}

}  // namespace

void PackSamplingRow(const SamplingRow& row, float* params) {
  std::fill_n(params, kSampleParamCount, 0.0f);
  VisitWords(row, [&](int word, auto value) {
    if (HoldsOneMore(word)) ++value;
    std::memcpy(params + word, &value, sizeof value);  // little-endian: low word first
  });
  const int32_t mask = row.use_mask ? 1 : 0, breakers = row.use_breakers ? 1 : 0;
  std::memcpy(params + kParamUseMask, &mask, sizeof mask);
  std::memcpy(params + kParamUseBreakers, &breakers, sizeof breakers);
}

SamplingRow UnpackSamplingRow(const float* params) {
  SamplingRow row;
  VisitWords(row, [&](int word, auto& value) {
    std::memcpy(&value, params + word, sizeof value);
    if (HoldsOneMore(word)) --value;
  });
  int32_t mask = 0, breakers = 0;
  std::memcpy(&mask, params + kParamUseMask, sizeof mask);
  std::memcpy(&breakers, params + kParamUseBreakers, sizeof breakers);
  row.use_mask = mask != 0;
  row.use_breakers = breakers != 0;
  return row;
}

std::array<uint32_t, 4> Philox(std::array<uint32_t, 4> c, std::array<uint32_t, 2> k) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53} * c[0], b = uint64_t{0xCD9E8D57} * c[2];
    c = {static_cast<uint32_t>(b >> 32) ^ c[1] ^ k[0], static_cast<uint32_t>(b),
         static_cast<uint32_t>(a >> 32) ^ c[3] ^ k[1], static_cast<uint32_t>(a)};
    k[0] += 0x9E3779B9;  // the golden ratio
    k[1] += 0xBB67AE85;  // sqrt(3) - 1
  }
  return c;
}

float Gumbel(uint64_t seed, uint32_t choice, uint32_t position, uint32_t vocabulary_id) {
  const std::array<uint32_t, 4> bits =
      Philox({vocabulary_id / 4, position, choice, 0},
             {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  return -std::log(-std::log(Uniform(bits[vocabulary_id % 4])));
}

float Coin(uint64_t seed, uint32_t choice, uint32_t position) {
  return Uniform(Philox({0, position, choice, 1},
                        {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)})[0]);
}

float InverseTemperature(const SamplingRow& row) { return 1 / std::max(row.temperature, 1e-6f); }

float DryPenalty(const SamplingRow& row, int32_t length) {
  constexpr float kLargestLogarithm = 88.72283f;  // of an f32
  auto exponent = static_cast<float>(length - row.dry_allowed_length);
  if (row.dry_base > 1.000001f) {
    exponent = std::min(exponent, std::floor(kLargestLogarithm / std::log(row.dry_base)));
  }
  return row.dry_multiplier * std::pow(row.dry_base, exponent);
}

int32_t ArgMax(const float* values, int64_t count) {
  int32_t best = 0;
  float high = -INFINITY;
  for (int64_t i = 0; i < count; ++i) {
    if (values[i] > high) {
      high = values[i];
      best = static_cast<int32_t>(i);
    }
  }
  return best;
}

}  // namespace vt::ir
