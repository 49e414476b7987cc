#include "vllm/weights/dummy.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "vt/ir/quant.h"

namespace vllm::weights {
namespace {

using vt::ir::DType;

constexpr float kDeviation = 0.02f;  // transformers' initializer_range

// SplitMix64 (Steele, Lea, Flood 2014): small, fast, equally distributed from any seed.
class Generator {
 public:
  explicit Generator(uint64_t seed) : state_(seed) {}
  uint64_t Next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }

 private:
  uint64_t state_;
};

// FNV-1a.
uint64_t HashName(std::string_view name) {
  uint64_t h = 0xcbf29ce484222325u;
  for (const char c : name) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return h;
}

// Four 16-bit uniforms' sum less its mean: near a normal distribution, without a logarithm.
float NearNormal(uint64_t bits) {
  const auto sum = static_cast<int32_t>((bits & 0xffff) + (bits >> 16 & 0xffff) +
                                        (bits >> 32 & 0xffff) + (bits >> 48));
  constexpr float kScale = 1.0f / 37837.0f;  // 65536 * sqrt(4 / 12): the sum's deviation
  return static_cast<float>(sum - 2 * 65535) * kScale;
}

template <typename T, typename Convert>
void FillPlain(Generator& g, float mean, std::span<std::byte> out, Convert convert) {
  for (size_t i = 0; i + sizeof(T) <= out.size(); i += sizeof(T)) {
    const T v = convert(mean + kDeviation * NearNormal(g.Next()));
    std::memcpy(out.data() + i, &v, sizeof v);
  }
}

// Where a format keeps its f16 scale and minimum, and what they must be for values of mean 0 and
// deviation 0.02 when all other bits are random. `unit` is the deviation of a value for a scale of
// 1; `middle` the minimum over the scale.
struct BlockScales {
  int scale_at;
  int minimum_at;  // -1: none
  float unit;
  float middle;
};
BlockScales ScalesOf(DType type) {
  switch (type) {
    case DType::kQ4_0:
      return {0, -1, 4.6f, 0};  // 0..15 less 8
    case DType::kQ4_1:
      return {0, 2, 4.6f, -7.5f};  // minimum added
    case DType::kQ5_0:
      return {0, -1, 9.2f, 0};
    case DType::kQ5_1:
      return {0, 2, 9.2f, -15.5f};
    case DType::kQ8_0:
      return {0, -1, 74.0f, 0};
    // Random sub-scales too: sc * q - 1.5 * m with sc, m in 0..15 and q in 0..3.
    case DType::kQ2_K:
      return {80, 82, 14.0f, 1.5f};
    case DType::kQ3_K:
      return {108, -1, 43.0f, 0};  // (sc - 32) * (q - 4)
    case DType::kQ4_K:
      return {0, 2, 257.0f, 7.5f};  // sc * q - 7.5 * m, sc and m in 0..63
    case DType::kQ5_K:
      return {0, 2, 524.0f, 15.5f};
    case DType::kQ6_K:
      return {208, -1, 1367.0f, 0};  // int8 sub-scale * (q - 32)
    case DType::kIQ4_NL:
      return {0, -1, 72.0f, 0};
    case DType::kIQ4_XS:
      return {0, -1, 1330.0f, 0};  // (sc - 32) * table value
    default:
      return {0, -1, 1, 0};
  }
}

void FillBlocks(Generator& g, DType type, std::span<std::byte> out) {
  size_t i = 0;
  for (; i + 8 <= out.size(); i += 8) {
    const uint64_t bits = g.Next();
    std::memcpy(out.data() + i, &bits, 8);
  }
  const uint64_t last = g.Next();
  std::memcpy(out.data() + i, &last, out.size() - i);

  if (type == DType::kMXFP4) {  // 2^-8 times codes of a deviation of 5.9
    for (size_t at = 0; at < out.size(); at += 17) out[at] = std::byte{120};
    return;
  }
  const BlockScales s = ScalesOf(type);
  const auto block = static_cast<size_t>(vt::ir::Info(type).bytes);
  const uint16_t scale = vt::ir::FloatToHalf(kDeviation / s.unit);
  const uint16_t minimum = vt::ir::FloatToHalf(kDeviation / s.unit * s.middle);
  for (size_t at = 0; at + block <= out.size(); at += block) {
    std::memcpy(out.data() + at + s.scale_at, &scale, sizeof scale);
    if (s.minimum_at >= 0) std::memcpy(out.data() + at + s.minimum_at, &minimum, sizeof minimum);
  }
}

}  // namespace

void FillRandom(std::string_view name, uint64_t seed, DType dtype, float mean,
                std::span<std::byte> out) {
  Generator g(HashName(name) ^ (seed * 0x9e3779b97f4a7c15u));
  // What is large repeats itself, as making gigabytes would take minutes; after a prime number of
  // blocks, so that no two rows are the same.
  constexpr size_t kBlocks = 262'139;
  const size_t period = kBlocks * static_cast<size_t>(vt::ir::Info(dtype).bytes);
  if (out.size() > period) {
    FillRandom(name, seed, dtype, mean, out.first(period));
    for (size_t at = period; at < out.size(); at += std::min(at, out.size() - at))
      std::memcpy(out.data() + at, out.data(), std::min(at, out.size() - at));
    return;
  }
  switch (dtype) {
    case DType::kF32:
      FillPlain<float>(g, mean, out, [](float f) { return f; });
      return;
    case DType::kF16:
      FillPlain<uint16_t>(g, mean, out, vt::ir::FloatToHalf);
      return;
    case DType::kBF16:
      FillPlain<uint16_t>(g, mean, out, vt::ir::FloatToBFloat);
      return;
    default:
      FillBlocks(g, dtype, out);
  }
}

}  // namespace vllm::weights
