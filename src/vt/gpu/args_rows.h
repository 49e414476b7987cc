// Arguments of the kernels that work row by row: elementwise operations and copies, norms, softmax,
// rotation. Each begins with RowWork.
//
// Kernels named *_plain are for the common case: all values are T, and all rows whole chunks of 16
// bytes, aligned, as are vectors of weights beside them.
#pragma once

#include "vt/gpu/args.h"

namespace vt::gpu {

// Rows of f32 or of the kernel's T. No base: there are none.
struct View {
  Rows rows;
  int32_t f32 = 0;
};

// Which thread works on what. lane_bits >= 0: 2^lane_bits neighbouring threads share a row, and a
// block has many rows. Otherwise `blocks` blocks, one after the other, share a row.
struct RowWork {
  const Header* header = nullptr;
  Count count;        // rows
  int32_t width = 0;  // values of a row
  int32_t lane_bits = -1;
  int32_t blocks = 1;
};

// Most threads of a block, and shared memory of norms and softmax.
inline constexpr int kRowsMapThreads = 256, kRowsNormThreads = 512, kRowsSoftmaxThreads = 1024,
                     kRowsLaneThreads =
                         128;  // where parts of a wave have rows; all that rows_rope has
inline constexpr int kRowsMostLanes = 32;  // of a wave of any device, to share a row
inline constexpr int kRowsScratch = 32;    // floats: a wave of 32 each, in a block of 1024
inline constexpr int kRowsSharedBytes = 2 * kRowsScratch * 4;

enum class RowFn : int32_t {
  kNone,
  kSilu,
  kGeluTanh,
  kGelu,
  kRelu,
  kSigmoid,
  kTanh,
  kExp,
  kSoftplus,
  kSquaredRelu,
  kQuickGelu,
  kClamp,    // p <= x <= q
  kScale,    // x * p + q
  kSoftCap,  // tanh(x * p) * q
};
enum class RowBinary : int32_t {
  kNone,
  kAdd,
  kSub,
  kMul,
  kDiv,
  kMulRow,  // b has one value a row
  kElse     // b where the index picks no row
};

// y = fn(x), then with b. An index picks the row of x; a row outside [0, index_rows) is zeros.
struct RowsMapArgs {
  RowWork work;
  View x, b, y;
  const int32_t* index = nullptr;
  int32_t index_rows = 0;
  RowFn fn = RowFn::kNone;
  RowBinary binary = RowBinary::kNone;
  float p = 1, q = 0;
};

// s = x + add, which `sum` keeps; y = (s - mean) / deviation * (w + offset) + bias + residual, the
// mean 0 unless `centre`. Everything but x, w and y may be absent.
struct RowsNormArgs {
  RowWork work;
  View x, add, sum, residual, y;
  const float* w = nullptr;
  const float* bias = nullptr;
  float eps = 0, offset = 0;
  int32_t centre = 0;
};

struct RowsSoftmaxArgs {
  RowWork work;
  View x, y;
  int32_t logarithm = 0;
};

// Heads of tokens, rotated by the position of their token; w: after an rms norm. The table has
// [positions][rotary / 2] times (cos, sin).
struct RowsRopeArgs {
  RowWork work;
  View x, y;
  const int32_t* positions = nullptr;
  const float* table = nullptr;
  int32_t table_positions = 1;
  int32_t heads = 1;  // rows a token
  int32_t half = 0;   // rotated pairs
  int32_t interleaved = 0;
  const float* w = nullptr;
  float eps = 0, offset = 0;
};

}  // namespace vt::gpu
