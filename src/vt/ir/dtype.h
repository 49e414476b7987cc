// Data types and quantised block formats: their names, block sizes and bytes. Names and numbers of
// the quantised formats follow GGUF (the ggml type ids of the format's specification).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace vt::ir {

enum class DType : uint8_t {
  kF32,
  kF16,
  kBF16,
  kI32,
  kI64,
  kI8,
  kU8,
  // Weights as GGUF stores them. A row is a whole number of blocks.
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ8_0,  // blocks of 32
  kQ2_K,
  kQ3_K,
  kQ4_K,
  kQ5_K,
  kQ6_K,  // superblocks of 256
  kIQ4_NL,
  kIQ4_XS,  // 32, 256
  kMXFP4,   // 32: OCP's MX format: 4-bit floats that share a power of two
  // Weights of safetensors in 8-bit floats, whatever shares a scale there: 32 codes of kF8_E4M3
  // behind their f32 scale. A float, so that every published scale is kept as it is.
  kF8_32,
  // Activations for integer dot products: blocks of 32 int8 values with an f32 scale and sums of
  // each 16 values.
  kQ8_A32,
  // Of cached keys and values: OCP's 8-bit float, a sign, 4 bits of exponent, 3 of mantissa; no
  // infinities, the largest is 448.
  kF8_E4M3,
};
inline constexpr int kDTypeCount = static_cast<int>(DType::kF8_E4M3) + 1;

struct DTypeInfo {
  std::string_view name;  // "f32", "Q4_K": as in GGUF and llama.cpp
  int block;              // values a block (1 for plain types)
  int bytes;              // bytes a block
  int ggml_type;          // -1 where GGUF has none
  bool quantised;
};

const DTypeInfo& Info(DType t);
inline std::string_view Name(DType t) { return Info(t).name; }
inline bool IsQuantised(DType t) { return Info(t).quantised; }

// Bytes of `count` consecutive values. REQUIRES: count is a multiple of the block.
inline int64_t Bytes(DType t, int64_t count) { return count / Info(t).block * Info(t).bytes; }

std::optional<DType> FromGgmlType(int ggml_type);
std::optional<DType> FromName(std::string_view name);  // case-insensitive

}  // namespace vt::ir
