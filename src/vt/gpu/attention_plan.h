// How the kernels of attention run: sizes of their tiles, and what has room in a device's shared
// memory.
#pragma once

#include <cstdint>

#include "vt/gpu/context.h"

namespace vt::gpu {

// Heads of which there is a kernel for all tokens (args_wide.h).
inline bool IsWide(const ir::AttentionAttrs& a) { return !a.latent() && a.head_dim > 256; }

// How the decode kernel runs on this device.
struct DecodeShape {
  int dim = 0;
  int waves = 0;  // 0: it does not fit
  bool one_buffer = false;
  bool stages_query = false;
  int64_t shared_bytes = 0;
  int blocks_per_unit = 1;
};
DecodeShape DecodeShapeOf(int64_t head_dim, ir::DType t, bool aligned, const DeviceFacts& d);

// How the kernel of few rows runs: attention_row.h. Where more heads share a head of keys than it
// takes, blocks would read the same keys, which costs nothing while tokens are few.
struct RowShape {
  int lanes = 0;  // 0: it does not run
  int rows = 1;
  int tiles = 4;  // of keys that a block takes at once
  int64_t shared_bytes = 0;
  int32_t long_keys = INT32_MAX;            // AttentionListSpec's
  int64_t long_tiles = 0, long_shares = 0;  // AttentionArgs'
};
// `blocks`: of a request's cache, at most.
RowShape RowShapeOf(const ir::AttentionAttrs& a, ir::DType t, ir::DType cache, int64_t blocks,
                    const ir::Bucket& b, const DeviceFacts& d);

// How the kernel of latent caches runs; it takes all tokens.
struct LatentShape {
  int dim = 0;  // 0: it does not run
  bool one_stage = false;
  int64_t shared_bytes = 0;
  int blocks_per_unit = 1;
};
LatentShape LatentShapeOf(const ir::AttentionAttrs& a, ir::DType t, const DeviceFacts& d);

// How the kernel of wide heads runs: with `most` row tiles a block, or with as many as fit.
struct WideShape {
  int row_tiles = 0;  // 0: it does not run
  bool one_buffer = false;
  int64_t shared_bytes = 0;
  int blocks_per_unit = 1;
};
WideShape WideShapeOf(const ir::AttentionAttrs& a, ir::DType t, int most, const DeviceFacts& d);

// How the prefill kernel runs. In f32, which is for checking, there is none: the decode kernel
// takes all tokens, as it does on devices where the prefill kernel does not fit.
struct PrefillShape {
  int dim = 0;
  int waves = 0;  // 0: it does not run
  bool one_stage = false;
  int64_t shared_bytes = 0;
  int64_t tile_heads = 1, tile_tokens = 0;
  int row_tiles = 0;  // of wide heads
};
PrefillShape PrefillShapeOf(const ir::AttentionAttrs& a, ir::DType t, const DeviceFacts& d);

}  // namespace vt::gpu
