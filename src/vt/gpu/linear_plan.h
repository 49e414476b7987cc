// Which kernel runs a linear, and how its work is dealt out: decided from shapes alone.
#pragma once

#include <cstdint>
#include <vector>

#include "vt/gpu/args_linear.h"
#include "vt/gpu/context.h"

namespace vt::gpu {

struct LinearShape {
  int64_t rows = 1;  // of x, at most
  int64_t k = 0;
  std::vector<int64_t> segments;  // rows of each weight
  bool act_mul = false;           // of two segments
  LinearInput input = LinearInput::kPlain;
  bool aligned = true;  // rows of x start on multiples of 16 bytes, evenly spaced
};

enum class LinearKernel : uint8_t {
  kSkinny,   // few rows
  kLibrary,  // the vendor's matrix products
  kTile,     // anything plain
  kNone      // a fused form that no kernel has for this shape
};

struct LinearPlan {
  LinearKernel kernel = LinearKernel::kNone;
  // Of kSkinny.
  bool staged = false;       // x in shared memory
  int token_tiles = 1;       // of 16 rows, a wave
  int weight_tiles = 1;      // a wave
  int waves = 8;             // a block
  int parts = 1;             // waves that share a unit's k
  int columns = 8;           // output columns of a unit
  int stream = 0;            // linear_stream: its StreamShape's most_rows
  int64_t ring = 0;          // its first byte in shared memory
  int64_t staged_pitch = 0;  // values
  int64_t partials = 0;      // bytes before the partial sums in shared memory
  int64_t shared_bytes = 0;
};

// Rows up to which the skinny kernels are used.
inline constexpr int64_t kSkinnyRows = 64;
// Rows up to which x is staged in shared memory, which every block does for itself.
inline constexpr int64_t kStagedRows = 16;

LinearPlan PlanLinear(const LinearShape& shape, const DeviceFacts& device);

// Units of a segment of so many rows.
inline int64_t LinearUnits(const LinearPlan& plan, int64_t rows) {
  return (rows + plan.columns - 1) / plan.columns;
}

// A block of linear_tile.
struct LinearTile {
  int64_t size, waves, shared_bytes;
};
LinearTile TileOf(const DeviceFacts& device);

}  // namespace vt::gpu
