// What the kernels of linears are told: the host side is linear_steps.cc.
#pragma once

#include "vt/gpu/args_rows.h"

namespace vt::gpu {

// Rows of the weights that follow one another with one pitch, and their place in the output.
struct LinearSegment {
  const void* w = nullptr;      // [rows, pitch] of T, zeros past k
  const float* bias = nullptr;  // [rows], or none
  int32_t rows = 0;
  int32_t column = 0;      // of the output, of the first row
  int32_t first_unit = 0;  // units of the segments before
  int32_t pad = 0;
};
inline constexpr int kLinearSegments = 4;

// Where the rows of activations come from.
enum class LinearInput : int32_t {
  kPlain,        // x
  kNorm,         // rms_norm(x, w)
  kNormAddNorm,  // s = r + rms_norm(x, w), then rms_norm(s, w2); s is an output too
};

// Few rows of activations (a decode): y = f(x) W^T (+ bias) (+ residual), or act(f(x) W0^T) *
// (f(x) W1^T).
//
// A unit is the output rows of one wave: `tiles` tiles of Mma<T>::kN rows of one segment, or for an
// act_mul half of them of segment 0 and half of segment 1. The k of a unit is split over
// 1 << parts_log2 waves of a block, which has `groups` units.
struct SkinnyArgs {
  const Header* header = nullptr;
  Rows x, out, residual;  // residual.base: nullptr for none
  LinearSegment segments[kLinearSegments];
  int32_t segment_count = 1;
  Count count;
  int32_t most_rows = 1;  // of the bucket; as many rows of x can be read
  int32_t k = 0, pitch = 0;
  int32_t units = 1, parts_log2 = 0, groups = 1;
  int32_t groups_inverse = 1 << 16;  // 2^16 / groups, rounded up
  int32_t out_f32 = 0;
  RowFn act = RowFn::kNone;  // else an act_mul's
  // Shared memory: the rows of a staged x, of each row two floats a wave for its norms, then (from
  // this byte on) the waves' partial products, [waves][most_rows][columns of a unit].
  int32_t partials = 0;
  int32_t ring = 0;  // of linear_stream, whose partial products stand there twice: its first byte
  // Of a staged x: waves that share a row.
  int32_t waves_a_row_log2 = 0;
  float inverse_k = 1;                                 // 1 / k
  int32_t packed = 0;                                  // all rows can be read by 16 bytes
  int32_t staged_pitch = 0;                            // values
  const float *weight1 = nullptr, *weight2 = nullptr;  // of the norms
  float eps1 = 0, offset1 = 0, eps2 = 0, offset2 = 0;
  Rows add, sum;  // r and s
};

// linear_stream: a unit is kStreamRows rows of the weights (an act_mul's: half of each), whose k
// all waves of a block share, a line after the other.
inline constexpr int kStreamRows = 16, kStreamWaves = 8;
// Rows of activations at most, values of a line, and how many lines ahead a wave asks for: the
// longer a line, the more of what a page of the memory holds is read at once.
struct StreamShape {
  int most_rows, line, depth;
};
inline constexpr StreamShape kStreamOne = {1, 256, 3}, kStreamFew = {8, 256, 2},
                             kStreamMore = {16, 128, 3};

// A block's tile of linear_tile, rows by columns, and its waves, for values of 2 and of 4 bytes.
inline constexpr int kLinearTile2 = 128, kLinearTileWaves2 = 8;
inline constexpr int kLinearTile4 = 64, kLinearTileWaves4 = 4;

// Any number of rows, any alignment: y = x W^T (+ bias) (+ residual) of one segment.
struct TileLinearArgs {
  const Header* header = nullptr;
  Rows x, out, residual;
  LinearSegment segment;
  Count count;
  int32_t k = 0, pitch = 0;
  int32_t out_f32 = 0;
  int32_t packed = 0;  // rows of x can be read by 16 bytes
};

// Every row of out is the biases: what a library's product is then added to.
struct LinearBiasArgs {
  const Header* header = nullptr;
  Rows out;
  LinearSegment segment;
  Count count;
  int32_t out_f32 = 0;
};
inline constexpr int kLinearBiasThreads = 256;

}  // namespace vt::gpu
