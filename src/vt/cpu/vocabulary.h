// Passes that the sampler makes over a whole row of logits, as an instruction set offers them. NaN
// loses every comparison and counts as -inf.
#pragma once

#include <cstdint>

namespace vt::cpu {

inline constexpr int64_t kBlock = 64;  // values of which one maximum is kept

// Of the finite ones among scores: how many, and sums of their distances from a center.
struct Moments {
  double count = 0, sum = 0, squares = 0;
};

// Random bits of 64 ids: word[l][i] is of id 4 i + l.
struct BlockBits {
  uint32_t word[4][16];
};

struct VocabularyKernels {
  // maxima[i]: of x[64 i, 64 i + 64).
  void (*block_maxima)(const float* x, int64_t n, float* maxima) = nullptr;
  // Sum of e^(x * scale - best) of the scores x * scale >= floor, none of which is above best.
  double (*sum_of_exp)(const float* x, int64_t n, float scale, float best, float floor) = nullptr;
  Moments (*moments)(const float* x, int64_t n, float scale, float center) = nullptr;
  // How many x are above `value`.
  int64_t (*count_above)(const float* x, int64_t n, float value) = nullptr;
  // Philox of sixteen counters {group, position, choice, 0}, {group + 1, ...}: ir/sampling.h.
  void (*random)(uint32_t group, uint32_t position, uint32_t choice, uint64_t seed,
                 BlockBits& bits) = nullptr;
};

}  // namespace vt::cpu
