// How rows are dealt to blocks and threads: the host's side of RowWork.
#pragma once

#include <algorithm>
#include <cstdint>

#include "vt/gpu/args_rows.h"
#include "vt/ir/graph.h"

namespace vt::gpu {

// A kernel's word for an activation.
RowFn RowFnOf(ir::Activation fn);  // rows_steps.cc

struct DealtRows {
  int32_t lane_bits = -1, blocks = 1;  // of RowWork
  int64_t threads = 64, grid = 0;
};

// Whole waves of any device.
inline int64_t WholeWaves(int64_t threads) {
  return std::max<int64_t>(64, (threads + 63) / 64 * 64);
}
// A part of a wave or of a block for each of `rows` rows: as many threads as `chunks`, or the next
// power of two.
inline DealtRows DealLanes(int64_t rows, int64_t chunks, int64_t most_threads) {
  DealtRows d;
  d.lane_bits = 0;
  while (int64_t{1} << d.lane_bits < chunks) ++d.lane_bits;
  const int64_t needed = rows << d.lane_bits;
  d.threads = WholeWaves(std::min(needed, most_threads));
  d.grid = (needed + d.threads - 1) / d.threads;
  return d;
}
// A thread for each chunk (rows_map).
inline DealtRows DealChunks(int64_t rows, int64_t chunks) {
  if (chunks <= kRowsMapThreads) return DealLanes(rows, chunks, kRowsMapThreads);
  DealtRows d;
  d.blocks = static_cast<int32_t>((chunks + kRowsMapThreads - 1) / kRowsMapThreads);
  d.threads = WholeWaves((chunks + d.blocks - 1) / d.blocks);  // 257 chunks: 2 x 192, not 2 x 256
  d.grid = rows * d.blocks;
  return d;
}
// Rows that threads sum over together: by a part of a wave, or a block of at most `most` threads
// (rows_norm, rows_softmax).
inline DealtRows DealWhole(int64_t rows, int64_t chunks, int64_t most) {
  if (chunks <= kRowsMostLanes) return DealLanes(rows, chunks, kRowsLaneThreads);
  DealtRows d;
  d.threads = WholeWaves(std::min(chunks, most));
  d.grid = rows;
  return d;
}
// Heads that are rotated: by a part of a wave, a thread for two chunks (rows_rope).
inline DealtRows DealHeads(int64_t rows, int64_t chunks) {
  return DealLanes(rows, std::min<int64_t>((chunks + 1) / 2, kRowsMostLanes), kRowsLaneThreads);
}

}  // namespace vt::gpu
