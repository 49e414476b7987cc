// Reference (scalar, portable) conversion between f32 and every stored format. What the formats
// mean: the GGUF specification's block structures. Fast kernels live in the backends; these are the
// oracle and the writer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "vt/ir/dtype.h"

namespace vt::ir {

float HalfToFloat(uint16_t h);
uint16_t FloatToHalf(float f);  // round to nearest even
float F8ToFloat(uint8_t v);     // E4M3
uint8_t FloatToF8(float f);  // to the nearest, ties to even; what is too large becomes the largest
inline float BFloatToFloat(uint16_t b) {
  const uint32_t u = static_cast<uint32_t>(b) << 16;
  float f;
  __builtin_memcpy(&f, &u, 4);
  return f;
}
uint16_t FloatToBFloat(float f);  // round to nearest even; NaN stays NaN

// `count` values of type `t` at `src` to f32. REQUIRES: count is a multiple of the block; t is not
// an integer type.
void Dequantize(DType t, const void* src, float* dst, int64_t count);

// f32 to `t`, as vllm-quantize writes it. The same bytes on every machine. K-quants and the IQ4
// formats search scales and minimums for the least error, the others round to nearest. REQUIRES,
// for a good file: finite values that halves can hold.
void Quantize(DType t, const float* src, void* dst, int64_t count);

// One Q8_A32 block: scale, sums of q over values 0..15 and 16..31, values. scale = max|x| / 127.
struct BlockQ8A32 {
  float d;
  int16_t sum[2];
  int8_t q[32];
};
static_assert(sizeof(BlockQ8A32) == 40);

}  // namespace vt::ir
