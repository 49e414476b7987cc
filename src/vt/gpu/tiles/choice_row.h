// A row of sampling parameters on the device, its random numbers, and arithmetic in doubles for the
// few places where the sampler's meaning asks for it.
#pragma once

#include "vt/gpu/args_choice.h"
#include "vt/gpu/gpu.h"

namespace vt::gpu {

GPU_FN float MinusInfinity() { return ::gpu::float_of(0xff800000u); }
GPU_FN float PlusInfinity() { return ::gpu::float_of(0x7f800000u); }
inline constexpr float kMostFinite = 3.402823466e38f;
inline constexpr double kChoiceSlack = 1e-6;

// NaN counts as -inf.
GPU_FN float Value(float x) { return x == x ? x : MinusInfinity(); }

// e^x to about 1e-15.
GPU_FN double ExpDouble(double x) {
  if (x < -745) return 0;
  if (x > 709.7) x = 709.7;
  const int k = static_cast<int>(x * 1.4426950408889634 + (x < 0 ? -0.5 : 0.5));
  const double r = (x - k * 0.693147180369123816490) - k * 1.90821492927058770002e-10;
  double e = 1;
#pragma unroll
  for (int i = 14; i > 0; --i) e = 1 + e * r * (1.0 / i);
  double base = k < 0 ? 0.5 : 2;
  for (int n = k < 0 ? -k : k; n > 0; n >>= 1) {
    if ((n & 1) != 0) e *= base;
    base *= base;
  }
  return e;
}

// log x of an x within f32's range: Newton's steps from f32's.
GPU_FN double LogDouble(double x) {
  double y = ::gpu::log(static_cast<float>(x));
  for (int i = 0; i < 2; ++i) y += x * ExpDouble(-y) - 1;
  return y;
}

GPU_FN double SqrtDouble(double x) {
  double scale = 1;
  for (; x > 1e30; x *= 1e-20) scale *= 1e10;
  for (; x > 0 && x < 1e-30; x *= 1e20) scale *= 1e-10;
  if (!(x > 0)) return 0;
  double y = ::gpu::sqrt(static_cast<float>(x));
  for (int i = 0; i < 2; ++i) y = 0.5 * (y + x / y);
  return y * scale;
}

// The smallest float that is not below x.
GPU_FN float AtLeast(double x) {
  if (!(x > -kMostFinite)) return -kMostFinite;  // NaN too
  if (x >= kMostFinite) return kMostFinite;
  const float f = static_cast<float>(x);
  if (!(static_cast<double>(f) < x)) return f;
  const uint32_t u = ::gpu::bits_of(f);
  if (f == 0) return ::gpu::float_of(1);
  return ::gpu::float_of(f > 0 ? u + 1 : u - 1);
}

struct Random4 {
  uint32_t word[4];
};

GPU_FN Random4 Philox(uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3, uint32_t k0,
                      uint32_t k1) {
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53} * c0, b = uint64_t{0xCD9E8D57} * c2;
    c0 = static_cast<uint32_t>(b >> 32) ^ c1 ^ k0;
    c1 = static_cast<uint32_t>(b);
    c2 = static_cast<uint32_t>(a >> 32) ^ c3 ^ k1;
    c3 = static_cast<uint32_t>(a);
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return {{c0, c1, c2, c3}};
}

GPU_FN float UniformOf(uint32_t bits) {
  return (static_cast<float>(bits >> 9) + 0.5f) * (1.0f / 8388608.0f);
}
GPU_FN float NoiseOf(uint32_t bits) { return -::gpu::log(-::gpu::log(UniformOf(bits))); }

// Of conditions that are all evaluated: what they read is asked for at once, and not one after the
// other's answer.
template <class... Conditions>
GPU_FN bool Any(Conditions... c) {
  return (static_cast<int>(c) | ...) != 0;
}
template <class... Conditions>
GPU_FN bool All(Conditions... c) {
  return (static_cast<int>(c) & ...) != 0;
}

// Reads words of a row when asked.
class ChoiceRow {
 public:
  GPU_FN ChoiceRow(const ChoiceArgs& a, int row) : words_(a.params + row * kChoiceParams) {}

  GPU_FN float real(ChoiceParam p) const { return words_[p]; }
  GPU_FN int word(ChoiceParam p) const { return static_cast<int>(::gpu::bits_of(words_[p])); }

  GPU_FN int forced() const { return word(kChoiceForcedOne) - 1; }
  GPU_FN int slot() const { return word(kChoiceSlotOne) - 1; }
  GPU_FN int logprobs() const { return word(kChoiceLogprobsOne) - 1; }
  GPU_FN int length() const { return word(kChoiceLength); }
  GPU_FN uint32_t position() const { return static_cast<uint32_t>(word(kChoicePosition)); }

  GPU_FN bool greedy() const { return !(real(kChoiceTemperature) > 0); }
  GPU_FN float inverse() const {
    const float t = real(kChoiceTemperature);
    return 1 / (t < 1e-6f ? 1e-6f : t);
  }
  GPU_FN bool repeats() const {
    const float penalty = real(kChoiceRepetition);
    return All(penalty > 0, penalty != 1);
  }
  GPU_FN bool counts() const {
    return Any(real(kChoicePresence) != 0, real(kChoiceFrequency) != 0);
  }
  GPU_FN bool dry() const {
    return All(real(kChoiceDryMultiplier) != 0, !(real(kChoiceDryBase) < 1),
               word(kChoiceDryLastN) != 0);
  }
  // Whether steps 1 to 6 change logits, given a slot.
  GPU_FN bool processes() const {
    return Any(word(kChoiceUseMask) != 0, word(kChoiceBiasWords) > 0, word(kChoiceBadWordWords) > 0,
               repeats(), counts(), dry());
  }

  GPU_FN bool top_k(int vocabulary) const {
    const float k = real(kChoiceTopK);
    return All(k >= 1, k < static_cast<float>(vocabulary));
  }
  GPU_FN bool top_p() const { return Fraction(real(kChoiceTopP)); }
  GPU_FN bool typical() const { return Fraction(real(kChoiceTypicalP)); }
  GPU_FN bool floors() const { return Any(real(kChoiceMinP) > 0, real(kChoiceTopNSigma) > 0); }
  GPU_FN bool xtc() const {
    const float probability = real(kChoiceXtcProbability);
    return All(probability > 0, !(real(kChoiceXtcThreshold) > 0.5f)) &&
           UniformOf(Bits(0, 1).word[0]) < probability;
  }
  GPU_FN bool filters(int vocabulary) const {
    return Any(top_k(vocabulary), top_p(), typical(), floors()) || xtc();
  }

  // Of ids 4 group to 4 group + 3.
  GPU_FN Random4 Bits(uint32_t group, uint32_t stream = 0) const {
    return Philox(group, position(), static_cast<uint32_t>(word(kChoiceChoice)), stream,
                  static_cast<uint32_t>(word(kChoiceSeed)),
                  ::gpu::bits_of(words_[kChoiceSeed + 1]));
  }
  GPU_FN float Gumbel(int id) const {
    const Random4 r = Bits(static_cast<uint32_t>(id) / 4);
    const int lane = id % 4;
    return NoiseOf(lane < 2 ? (lane == 0 ? r.word[0] : r.word[1])
                            : (lane == 2 ? r.word[2] : r.word[3]));
  }

 private:
  GPU_FN static bool Fraction(float p) { return All(p > 0, p < 1); }
  const float* words_;
};

// A slot's words; nullptr: there is no such slot.
GPU_FN int32_t* SlotAt(const ChoiceSlots& s, int slot) {
  if (slot < 0 || slot >= s.count) return nullptr;
  return s.words + slot * s.stride;
}
GPU_FN bool HasBit(const int32_t* mask, int id, int vocabulary) {
  return id >= 0 && id < vocabulary && (static_cast<uint32_t>(mask[id / 32]) >> (id % 32) & 1) != 0;
}
// Whether the row is read from the workspace, where the first pass has put it processed.
GPU_FN bool IsProcessed(const ChoiceArgs& a, const ChoiceRow& r) {
  return All(SlotAt(a.slots, r.slot()) != nullptr, r.processes());
}

}  // namespace vt::gpu
