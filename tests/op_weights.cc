#include "tests/op_weights.h"

#include <random>
#include <string>

#include "vt/ir/quant.h"

namespace tests {

using namespace vt::ir;  // NOLINT: written in the IR's words

namespace {

uint32_t Hash(const std::string& s) {
  uint32_t h = 2166136261u;  // FNV-1a
  for (const char c : s) h = (h ^ static_cast<uint8_t>(c)) * 16777619u;
  return h;
}

}  // namespace

std::vector<float> RoundedTo(DType t, std::vector<float> values) {
  const auto count = static_cast<int64_t>(values.size());
  std::vector<std::byte> bits(static_cast<size_t>(Bytes(t, count)));
  Quantize(t, values.data(), bits.data(), count);
  Dequantize(t, bits.data(), values.data(), count);
  return values;
}

StoredWeight RandomWeight(const Value& v, float size) {
  StoredWeight w;
  const int64_t count = Elements(v.shape, {});
  std::vector<float> x(static_cast<size_t>(count));
  if (v.dtype == DType::kI64) {  // a table of numbers below 12
    for (int64_t i = 0; i < count; ++i) {
      const int64_t value = (i * 7 + i / 12) % 12;
      const auto* bytes = reinterpret_cast<const std::byte*>(&value);
      w.bytes.insert(w.bytes.end(), bytes, bytes + sizeof(value));
      w.values.push_back(static_cast<float>(value));
    }
    return w;
  }
  std::mt19937 random(Hash(v.name));
  std::normal_distribution<float> normal;
  // Vectors are norm weights and biases, about 1; rates of decay about -1.
  const bool vector = v.shape.size() == 1;
  const float middle = !vector ? 0.0f : v.name.rfind("negative.", 0) == 0 ? -1.0f : 1.0f;
  if (vector) size = 0.1f;
  for (float& f : x) f = middle + size * normal(random);
  w.bytes.resize(static_cast<size_t>(Bytes(v.dtype, count)));
  Quantize(v.dtype, x.data(), w.bytes.data(), count);
  w.values.resize(x.size());
  Dequantize(v.dtype, w.bytes.data(), w.values.data(), count);
  return w;
}

}  // namespace tests
