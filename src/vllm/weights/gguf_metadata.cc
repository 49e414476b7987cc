#include <cmath>
#include <cstring>
#include <limits>

#include "base/strings.h"
#include "vllm/weights/gguf.h"

namespace vllm::weights {
namespace {

using base::Code;
using base::Error;
using base::Printable;
using base::Result;

Error Missing(std::string_view key) {
  return {Code::kCorrupt, fmt::format("metadata key '{}' is missing", Printable(key))};
}
Error WrongType(std::string_view key, std::string_view wanted) {
  return {Code::kCorrupt, fmt::format("metadata key '{}' must be {}", Printable(key), wanted)};
}

template <typename T>
T Load(const std::byte* p) {
  T v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

// An integer or bool at `p`; nothing for other types and for values over 2^63 - 1.
std::optional<int64_t> LoadInt(GgufType type, const std::byte* p) {
  switch (type) {
    case GgufType::kU8:
    case GgufType::kBool:
      return Load<uint8_t>(p);
    case GgufType::kI8:
      return Load<int8_t>(p);
    case GgufType::kU16:
      return Load<uint16_t>(p);
    case GgufType::kI16:
      return Load<int16_t>(p);
    case GgufType::kU32:
      return Load<uint32_t>(p);
    case GgufType::kI32:
      return Load<int32_t>(p);
    case GgufType::kI64:
      return Load<int64_t>(p);
    case GgufType::kU64: {
      const auto v = Load<uint64_t>(p);
      if (v > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
      return static_cast<int64_t>(v);
    }
    default:
      return std::nullopt;
  }
}

size_t IntSize(GgufType type) {
  switch (type) {
    case GgufType::kU8:
    case GgufType::kI8:
    case GgufType::kBool:
      return 1;
    case GgufType::kU16:
    case GgufType::kI16:
      return 2;
    case GgufType::kU32:
    case GgufType::kI32:
      return 4;
    case GgufType::kU64:
    case GgufType::kI64:
      return 8;
    default:
      return 0;
  }
}

std::string_view AsText(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

const GgufValue* GgufMetadata::Find(std::string_view key) const {
  const auto it = index_.find(key);
  return it == index_.end() ? nullptr : &it->second;
}

bool GgufMetadata::Add(std::string_view key, const GgufValue& value) {
  if (!index_.emplace(key, value).second) return false;
  keys_.push_back(key);
  return true;
}

Result<int64_t> GgufMetadata::Int(std::string_view key) const {
  const GgufValue* v = Find(key);
  if (v == nullptr) return Missing(key);
  const std::optional<int64_t> i =
      v->type == GgufType::kBool ? std::nullopt : LoadInt(v->type, v->bytes.data());
  if (!i) return WrongType(key, "an integer below 2^63");
  return *i;
}

Result<int64_t> GgufMetadata::Int(std::string_view key, int64_t fallback) const {
  if (!Has(key)) return fallback;
  return Int(key);
}

Result<double> GgufMetadata::Number(std::string_view key) const {
  const GgufValue* v = Find(key);
  if (v == nullptr) return Missing(key);
  double d = 0;
  if (v->type == GgufType::kF32) {
    d = Load<float>(v->bytes.data());
  } else if (v->type == GgufType::kF64) {
    d = Load<double>(v->bytes.data());
  } else if (v->type != GgufType::kBool && LoadInt(v->type, v->bytes.data())) {
    d = static_cast<double>(*LoadInt(v->type, v->bytes.data()));
  } else {
    return WrongType(key, "a number");
  }
  if (!std::isfinite(d)) return WrongType(key, "a finite number");
  return d;
}

Result<double> GgufMetadata::Number(std::string_view key, double fallback) const {
  if (!Has(key)) return fallback;
  return Number(key);
}

Result<bool> GgufMetadata::Bool(std::string_view key, bool fallback) const {
  const GgufValue* v = Find(key);
  if (v == nullptr) return fallback;
  if (v->type != GgufType::kBool) return WrongType(key, "a bool");
  return v->bytes[0] != std::byte{0};
}

Result<std::string_view> GgufMetadata::String(std::string_view key) const {
  const GgufValue* v = Find(key);
  if (v == nullptr) return Missing(key);
  if (v->type != GgufType::kString) return WrongType(key, "a string");
  return AsText(v->bytes);
}

Result<std::string_view> GgufMetadata::String(std::string_view key,
                                              std::string_view fallback) const {
  if (!Has(key)) return fallback;
  return String(key);
}

Result<std::vector<std::string_view>> GgufMetadata::Strings(std::string_view key) const {
  const GgufValue* v = Find(key);
  if (v == nullptr) return Missing(key);
  if (v->type != GgufType::kArray || v->element != GgufType::kString)
    return WrongType(key, "an array of strings");
  std::vector<std::string_view> out;
  out.reserve(v->count);  // the parser has walked these lengths
  const std::byte* p = v->bytes.data();
  for (uint64_t i = 0; i < v->count; ++i) {
    const auto length = Load<uint64_t>(p);
    out.push_back(AsText({p + sizeof(uint64_t), length}));
    p += sizeof(uint64_t) + length;
  }
  return out;
}

Result<std::vector<int64_t>> GgufMetadata::Ints(std::string_view key) const {
  const GgufValue* v = Find(key);
  if (v == nullptr) return Missing(key);
  const size_t size = v->type == GgufType::kArray ? IntSize(v->element) : 0;
  if (size == 0) return WrongType(key, "an array of integers");
  std::vector<int64_t> out;
  out.reserve(v->count);
  for (uint64_t i = 0; i < v->count; ++i) {
    const std::optional<int64_t> n = LoadInt(v->element, v->bytes.data() + i * size);
    if (!n) return WrongType(key, "an array of integers below 2^63");
    out.push_back(*n);
  }
  return out;
}

Result<std::vector<float>> GgufMetadata::Floats(std::string_view key) const {
  const GgufValue* v = Find(key);
  if (v == nullptr) return Missing(key);
  if (v->type != GgufType::kArray ||
      (v->element != GgufType::kF32 && v->element != GgufType::kF64)) {
    return WrongType(key, "an array of floats");
  }
  std::vector<float> out(v->count);
  for (uint64_t i = 0; i < v->count; ++i) {
    out[i] = v->element == GgufType::kF32
                 ? Load<float>(v->bytes.data() + i * 4)
                 : static_cast<float>(Load<double>(v->bytes.data() + i * 8));
  }
  return out;
}

}  // namespace vllm::weights
