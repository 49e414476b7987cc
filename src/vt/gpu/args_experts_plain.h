// What the kernels of experts' matrices of plain values are told, where rows of x are few: the host
// side is expert_plain_steps.cc.
#pragma once

#include "vt/gpu/args_linear.h"
#include "vt/gpu/args_router.h"

namespace vt::gpu {

// Every row of out has matrices of its own, by its id, of `experts` that stand one behind the
// other: y = x W^T of each segment, or act(x W0^T) * (x W1^T). Without an expert a row is zeros. A
// wave has a unit: as many rows of the weights as the kernel's name says, of an act_mul half of
// them of segment 0 and half of segment 1. block() is the row of out, so that rows of the same
// expert are read at the same time; block_y() counts blocks of units.
//
// With weights (experts_sum), rows of out are sums of their `chosen` rows times their weights
// (+ residual + second) of one segment: a block has units, its waves share the chosen.
//
// Of an act_mul and of a sum a wave may have `turns` units, one behind the other: it asks for the
// next one's rows while it has those of this one.
//
// A shared expert, which every token has, needs no choice: its weights are asked for before there
// is one. Of an act_mul its matrices are segments 2 and 3, and its blocks the first `shared_grid`
// of block_y(), shared_blocks of them a token. Of a sum its matrix is segment 1, and the last
// shared_waves of a block have shared_part values each of its row.
//
// Shared memory: a row of x, or `stage` values of each wave; behind those the expert that was
// chosen, or of each wave of a sum a float an output of the block.
struct PlainExpertArgs {
  const Header* header = nullptr;
  Rows x;  // of T, each row on a multiple of 16 bytes, and so many
  View out;
  View residual, second;  // what is added; rows.base: nullptr for none
  const int32_t* ids = nullptr;
  const float* weights = nullptr;
  LinearSegment segments[kLinearSegments];
  int32_t segment_count = 1, units = 1;
  Count count;  // rows of out
  int32_t k = 0, pitch = 0;
  int32_t experts = 1, chosen = 1;
  int32_t shared_x = 0;  // x has a row for `chosen` ids
  RowFn act = RowFn::kNone;
  int32_t turns = 1;
  int32_t stage = 0;
  View shared_out;  // of the shared expert's act_mul
  Rows z;           // its row of x in a sum, like x
  View gate;        // that row's weight; rows.base: nullptr for 1
  int32_t shared_grid = 0, shared_blocks = 1;
  int32_t shared_waves = 0, shared_part = 0, shared_k = 0, shared_pitch = 0;
  // With logits a block of the first block_y() behind shared_grid's writes each token's choice:
  // last they would begin, where the grid is full, when the others end.
  RouterHere here;
};
// Segments of a shared expert.
inline constexpr int kSharedUp = 2, kSharedDown = 1;
inline constexpr int kPlainExpertsThreads = 128, kPlainExpertsSumThreads = 320;

// Rows of a unit, and how many times 16 bytes a lane of each are under way.
struct PlainExpertShape {
  int rows, depth;
};
inline constexpr PlainExpertShape kPlainExpertsLong = {2, 8}, kPlainExpertsShort = {4, 4};
inline constexpr PlainExpertShape kPlainExpertsSumLong = {2, 6}, kPlainExpertsSumShort = {4, 3};
// At most; the outputs of a sum's block have a thread each of a wave.
inline constexpr int kPlainExpertsTurns = 8;

}  // namespace vt::gpu
