// Arguments of the kernel of heads of more than 256 values, which serves requests of few tokens and
// of many.
#pragma once

#include "vt/gpu/args_attention.h"

namespace vt::gpu {

struct AttentionWideArgs {
  AttentionArgs read;
  int32_t by_tiles = 0;    // the list's tiles of queries; else its items
  int32_t held_bytes = 0;  // WideHeldBytes
};

// --- a block: row tiles of 16 rows of q each, whose columns of values kWideParts waves share.
inline constexpr int kWideDim = 512;  // padded
inline constexpr int kWideParts = 4;
// Row tiles of a block at most: in f32, and where copies do not run ahead (shared memory has no
// room for more there), one.
constexpr int WideMostTiles(int size, bool ahead) { return size == 2 && ahead ? 4 : 1; }
inline constexpr int kWideScorePitch = kTileKeys + 4;
inline constexpr int kWideSumPitch = kWideDim + 8;
// Columns of keys and of values that are brought to shared memory at once: all but in f32.
constexpr int WideColumns(int size) { return size == 4 ? kWideDim / 4 : kWideDim; }
constexpr int WideBufferBytes(int size) {
  const int keys = KeyPitch(WideColumns(size), size), values = ValuePitch(WideColumns(size), size);
  return kTileKeys * (keys > values ? keys : values) * size;
}
// Of q and of what the list's keys pass through, or of the sums in the end.
constexpr int WideHeldBytes(int size, int row_tiles, bool one_buffer) {
  const int loop = 16 * row_tiles * KeyPitch(kWideDim, size) * size +
                   (one_buffer ? 1 : 2) * WideBufferBytes(size);
  const int sums = 16 * row_tiles * kWideSumPitch * 4;
  return loop > sums ? loop : sums;
}
constexpr int WideBytes(int size, int row_tiles, bool one_buffer) {
  return WideHeldBytes(size, row_tiles, one_buffer) +
         row_tiles * 16 *
             (kWideScorePitch * 4 + 2 * 4 +
              kWideParts * kTileKeys * size);  // scores, limits, from_c
}

}  // namespace vt::gpu
