// How the work of a quantised matrix's kernels is dealt out: decided from shapes alone.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "vt/gpu/args_quant.h"
#include "vt/gpu/context.h"

namespace vt::gpu {

// Tokens of a bucket up to which activations are int8 blocks.
inline constexpr int64_t kQuantTokens = 32;
// Of 8-bit floats more rows are for tiles: their products are of floats.
inline int64_t QuantTokens(QuantFormat f) { return f == QuantFormat::kF8_32 ? 1 : kQuantTokens; }

struct QuantGemvPlan {
  int at_once = 1;            // rows of x that a wave takes
  int parts = 1, groups = 1;  // waves that share a unit's k; units that a block has at once
  int64_t blocks = 1;         // which may have units one after the other
  int64_t shared_bytes = 0;
  int lanes = 0;  // of sums of experts
};

// The end of the name of a kernel that knows the formats of these segments (quant_sets.h).
std::string QuantSetSuffix(std::span<const QuantSegment> segments);

// `rows` of x, units of all segments, blocks of 32 values a row.
QuantGemvPlan PlanQuantGemv(int64_t rows, int64_t units, int64_t blocks, const DeviceFacts& device);

// Of one row that each block quantises for itself.
QuantGemvPlan PlanQuantFrom(int64_t units, int64_t blocks, const DeviceFacts& device);

// Of rows that have a matrix each; `chosen`: how many of them are summed, or 0.
QuantGemvPlan PlanQuantExperts(int64_t rows, int64_t units, int64_t blocks, int64_t chosen,
                               const DeviceFacts& device);

// A block of quant_experts_down of rows of so many blocks, of experts and the shared one; lanes is
// 0 where the kernel does not take them.
struct QuantDownPlan {
  int lanes = 0;     // that have a row
  int64_t rows = 0;  // of the block
  int64_t shared_bytes = 0;
};
QuantDownPlan PlanQuantDown(int64_t blocks, int64_t experts, const DeviceFacts& device);

inline int64_t QuantUnits(int64_t rows, bool act_mul) {
  return act_mul ? rows : (rows + kQuantUnit - 1) / kQuantUnit;
}

// Bytes of the values that a matrix is expanded to for the vendor's library, where that is faster
// than tiles: rows enough that each value is used often, and a matrix that is not too large. 0: it
// is not.
int64_t QuantExpandBytes(int64_t rows, int64_t weight_rows, int64_t k, const DeviceFacts& device);

struct QuantTilePlan {
  QuantTileShape shape;
  const char* kernel;  // without its type
  int64_t shared_bytes;
};
QuantTilePlan PlanQuantTile(int64_t rows, const DeviceFacts& device);
// Of tiles of one expert each.
QuantTilePlan PlanQuantExpertTile(int64_t rows, int64_t experts, const DeviceFacts& device);

}  // namespace vt::gpu
