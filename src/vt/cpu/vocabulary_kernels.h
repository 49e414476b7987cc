// The passes of vocabulary.h, in the instruction set of the including translation unit.
#pragma once

#include "vt/cpu/simd.h"
#include "vt/cpu/vocabulary.h"

namespace vt::cpu {
namespace {

void BlockMaxima(const float* x, int64_t n, float* maxima) {
  int64_t b = 0;
  for (; (b + 1) * kBlock <= n; ++b) {
    vf most = Splat(-__builtin_inff());
    for (int64_t i = 0; i < kBlock; i += kNr) most = Max(Load(x + b * kBlock + i), most);
    maxima[b] = MaxLane(most);
  }
  if (b * kBlock == n) return;
  float most = -__builtin_inff();
  for (int64_t i = b * kBlock; i < n; ++i) most = x[i] > most ? x[i] : most;
  maxima[b] = most;
}

double SumOfExp(const float* x, int64_t n, float scale, float best, float floor) {
  constexpr int64_t kStretch = 64 * kNr;  // short enough for a float's sum to stay exact
  double sum = 0;
  int64_t i = 0;
  while (i + kNr <= n) {
    vf part = {};
    for (const int64_t end = n < i + kStretch ? n : i + kStretch; i + kNr <= end; i += kNr) {
      const vf s = Load(x + i) * scale;
      const vf e = Exp(s - best);
      part += s >= floor ? e : vf{};
    }
    sum += static_cast<double>(Sum(part));
  }
  for (; i < n; ++i) {
    const float s = x[i] * scale;
    if (s >= floor) sum += static_cast<double>(Exp(Splat(s - best))[0]);
  }
  return sum;
}

Moments MomentsOf(const float* x, int64_t n, float scale, float center) {
  constexpr int kLanes = 8;
  double count[kLanes] = {}, sum[kLanes] = {}, squares[kLanes] = {};
  const auto add = [&](int l, float value) {
    const float s = value * scale;
    const bool in = s > -__builtin_inff();
    const double d = in ? static_cast<double>(s) - static_cast<double>(center) : 0.0;
    count[l] += in ? 1.0 : 0.0;
    sum[l] += d;
    squares[l] += d * d;
  };
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int l = 0; l < kLanes; ++l) add(l, x[i + l]);
  }
  for (; i < n; ++i) add(0, x[i]);
  Moments m;
  for (int l = 0; l < kLanes; ++l) {
    m.count += count[l];
    m.sum += sum[l];
    m.squares += squares[l];
  }
  return m;
}

int64_t CountAbove(const float* x, int64_t n, float value) {
  vi below = {};  // -1 for each
  int64_t i = 0;
  for (; i + kNr <= n; i += kNr) below += Load(x + i) > value;
  int64_t count = 0;
  for (int l = 0; l < kNr; ++l) count -= below[l];
  for (; i < n; ++i) count += x[i] > value ? 1 : 0;
  return count;
}

void PhiloxBlock(uint32_t group, uint32_t position, uint32_t choice, uint64_t seed,
                 BlockBits& bits) {
  constexpr int kCounters = 16;
  uint32_t(&c)[4][kCounters] = bits.word;
  for (int l = 0; l < kCounters; ++l) {
    c[0][l] = group + static_cast<uint32_t>(l);
    c[1][l] = position;
    c[2][l] = choice;
    c[3][l] = 0;
  }
  auto k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    for (int l = 0; l < kCounters; ++l) {
      const uint64_t a = uint64_t{0xD2511F53} * c[0][l], b = uint64_t{0xCD9E8D57} * c[2][l];
      const uint32_t c1 = c[1][l], c3 = c[3][l];
      c[0][l] = static_cast<uint32_t>(b >> 32) ^ c1 ^ k0;
      c[1][l] = static_cast<uint32_t>(b);
      c[2][l] = static_cast<uint32_t>(a >> 32) ^ c3 ^ k1;
      c[3][l] = static_cast<uint32_t>(a);
    }
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
}

inline VocabularyKernels VocabularyPasses() {
  return {BlockMaxima, SumOfExp, MomentsOf, CountAbove, PhiloxBlock};
}

}  // namespace
}  // namespace vt::cpu
