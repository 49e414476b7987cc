// What the kernels around experts are told: a norm and the router behind it, the order in which
// many rows are taken, and the sum at the end. The choice: args_router.h. Their matrices:
// args_quant.h, args_experts_plain.h.
#pragma once

#include "vt/gpu/args_quant.h"
#include "vt/gpu/args_router.h"

namespace vt::gpu {

// h = rms_norm(x): y = quantize(h) or `row` = h, by a block of its own, and the router of the
// logits w h, `logits` being room for them, [tokens][experts]. With gate_w, one row, gate =
// gate_fn(gate_w h). In the other blocks a wave has a row of w or gate_w; block_y() is the token.
struct NormRouterArgs {
  RouterArgs router;
  View x, gate;
  RowNorm norm;
  QuantRows y;                                 // or
  Rows row;                                    // of T; base: nullptr for none
  int32_t width = 0;                           // a multiple of 32
  const void *w = nullptr, *gate_w = nullptr;  // of T, rows `pitch` values apart
  int64_t pitch = 0;
  float* logits = nullptr;
  int32_t* counters = nullptr;  // a token; zero between launches
  RowFn gate_fn = RowFn::kNone;
  int32_t chooses = 1;  // 0: the next launch does
  // Of norm_router_rows: waves that share a row of w, and values of the normed row a block.
  int32_t row_parts_log2 = 0, row_share = 0;
};
inline constexpr int kNormRouterThreads = 128;
inline constexpr int kRouterRowHeld = 4;  // chunks of eight values a lane of norm_router_rows

// Two floats an expert and one a group, of shared memory.
inline constexpr int kMostExperts = 1024;

// Rows of a grouped linear by expert: tiles of at most `rows` of them, `order` tells which. Rows
// whose id is no expert's stand in tiles of expert -1, behind the others. A block does it all.
struct ExpertSortArgs {
  const Header* header = nullptr;
  const int32_t* ids = nullptr;
  Count count;  // of rows
  int32_t experts = 1, rows = 1, most_tiles = 1;
  QuantExpertTile* tiles = nullptr;
  int32_t* order = nullptr;
};
inline constexpr int kExpertSortThreads = 1024;
inline constexpr int kExpertSortScratch = 32;  // a wave of a block
constexpr int ExpertSortBytes(int experts) {
  return (2 * kExpertSortScratch + 3 * (experts + 1)) * 4;
}

// y[t] = the sum over j of weights[t][j] x[t][j].
struct ExpertSumArgs {
  const Header* header = nullptr;
  View x, y;
  const float* weights = nullptr;
  Count count;
  int32_t chosen = 1, width = 0;
  int32_t packed = 0;  // all rows are of the kernel's T, and whole aligned chunks of 16 bytes
};
inline constexpr int kExpertSumThreads = 128;

}  // namespace vt::gpu
