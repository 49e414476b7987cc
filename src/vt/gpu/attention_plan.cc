#include "vt/gpu/attention_plan.h"

#include <algorithm>
#include <bit>

#include "vt/gpu/args_attention.h"
#include "vt/gpu/args_latent.h"
#include "vt/gpu/args_wide.h"

namespace vt::gpu {
namespace {

// Rows of a matrix product's result of which a lane holds values (args_attention.h).
int LaneRows(const DeviceFacts& d) { return d.cuda ? 2 : 256 / d.properties.wave; }

// Shared memory of a unit: on RDNA twice what a block may have.
int64_t UnitSharedBytes(const DeviceFacts& d) {
  return d.properties.shared_bytes * (d.properties.arch.starts_with("gfx1") ? 2 : 1);
}

// The kernels' sizes of head_dim; 0: none is large enough. In f32 there are fewer.
int PaddedDim(int64_t head_dim, ir::DType t) {
  for (const int dim : {32, 64, 96, 128, 256}) {
    if (t == ir::DType::kF32 && (dim == 32 || dim == 96)) continue;
    if (head_dim <= dim) return dim;
  }
  return 0;
}

// Heads that share keys share a tile of queries, so that it is over few tokens and few of its keys
// are masked; more than 8 gain nothing.
int64_t TileHeads(const ir::AttentionAttrs& a) {
  const int64_t group = a.heads / a.kv_heads;
  int64_t heads = 1;
  for (int64_t h = 1; h <= std::min<int64_t>(group, 8); ++h) {
    if (group % h == 0) heads = h;
  }
  return heads;
}

}  // namespace

DecodeShape DecodeShapeOf(int64_t head_dim, ir::DType t, bool aligned, const DeviceFacts& d) {
  DecodeShape s;
  s.dim = PaddedDim(head_dim, t);
  const int size = ir::Info(t).bytes;
  s.stages_query = !aligned || head_dim != s.dim || !KeepsQuery(s.dim, size, LaneRows(d));
  const int64_t query = s.stages_query ? DecodeQueryBytes(s.dim, size) : 0;
  // AMD's copies to shared memory are done when they have been asked for: a second buffer would
  // only keep other blocks away.
  const bool amd = d.properties.arch.starts_with("gfx");
  for (const bool one_buffer : {amd, true}) {
    for (const int waves : {4, 2, 1}) {
      const int64_t bytes = query + waves * int64_t{DecodeWaveBytes(s.dim, size, one_buffer)};
      if (bytes > d.properties.shared_bytes) continue;
      s.waves = waves;
      s.one_buffer = one_buffer;
      s.shared_bytes = bytes;
      // A multiprocessor has about what one block may have, and keeps 1 KiB a block; registers
      // allow two blocks of four waves where head_dim is above 64.
      s.blocks_per_unit = static_cast<int>(
          std::clamp<int64_t>(UnitSharedBytes(d) / (bytes + 1024), 1, s.dim <= 64 ? 4 : 2));
      return s;
    }
  }
  return s;
}

RowShape RowShapeOf(const ir::AttentionAttrs& a, ir::DType t, ir::DType cache, int64_t blocks,
                    const ir::Bucket& b, const DeviceFacts& d) {
  constexpr int64_t kMostRows = 4;
  RowShape s;
  const int64_t group = a.heads / a.kv_heads;
  const int64_t most_tokens = group > kMostRows ? 8 : 32;  // many have work for matrix cores
  // Compiled for AMD's cards it takes more registers than a lane has.
  if (t == ir::DType::kF32 || a.latent() || IsWide(a) || a.head_dim % 8 != 0 ||
      b.tokens > most_tokens || d.properties.arch.starts_with("gfx"))
    return s;
  // A head a block as long as that leaves half of the multiprocessors without work, or two as long
  // as each has one block: what one block does for several heads, it does one after the other.
  const int64_t heads = b.tokens * a.heads, units = d.properties.units;
  const int64_t most_rows = 2 * heads <= units ? 1 : heads <= 2 * units ? 2 : kMostRows;
  s.rows = static_cast<int>(
      std::min(static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(group))), most_rows));
  s.lanes = static_cast<int>(std::bit_ceil(std::max<uint64_t>(a.head_dim / 8, 4)));
  // What waves leave behind, and in its place what each part of a token counts for each row.
  s.shared_bytes =
      std::max(kRowThreads / d.properties.wave * int64_t{RowWaveFloats(s.lanes * 8, s.rows)},
               int64_t{s.rows} * d.properties.units) *
      4;
  s.tiles = std::max(1, kRowThreads / s.lanes * RowDepth(s.lanes, s.rows) / kTileKeys);
  if (s.shared_bytes > d.properties.shared_bytes) return {};
  const int wave = static_cast<int>(d.properties.wave);
  const int64_t at_once = LongHeads(wave),
                long_bytes = std::max({s.shared_bytes, int64_t{LongBytes(s.lanes * 8, wave)},
                                       at_once * d.properties.units * 4});
  if (group >= d.long_heads && blocks >= d.long_blocks && a.head_dim == s.lanes * 8 &&
      CanBeLong(s.lanes, s.rows, t == cache) && long_bytes <= d.properties.shared_bytes) {
    s.long_keys = LongKeys(s.lanes);
    s.long_tiles = (group + at_once - 1) / at_once;
    s.long_shares = group / s.long_tiles;
    s.shared_bytes = long_bytes;
  }
  return s;
}

LatentShape LatentShapeOf(const ir::AttentionAttrs& a, ir::DType t, const DeviceFacts& d) {
  LatentShape s;
  const bool small = a.head_dim <= 128 && a.v_dim <= 64;
  if (a.head_dim > 576 || a.v_dim > 512 || a.sinks || a.window != 0) return s;
  // AMD's copies to shared memory are done when they have been asked for.
  const bool amd = d.properties.arch.starts_with("gfx");
  for (const bool one_stage : {amd, true}) {
    const int64_t bytes = LatentBytes(small ? 128 : 576, ir::Info(t).bytes, one_stage ? 1 : 2);
    if (bytes > d.properties.shared_bytes) continue;
    s.dim = small ? 128 : 576;
    s.one_stage = one_stage;
    s.shared_bytes = bytes;
    s.blocks_per_unit =
        static_cast<int>(std::clamp<int64_t>(UnitSharedBytes(d) / (bytes + 1024), 1, 2));
    return s;
  }
  return s;
}

WideShape WideShapeOf(const ir::AttentionAttrs& a, ir::DType t, int most, const DeviceFacts& d) {
  WideShape s;
  if (a.head_dim > kWideDim) return s;
  const bool amd = d.properties.arch.starts_with("gfx");
  const int size = ir::Info(t).bytes;
  for (int tiles = std::min(most, WideMostTiles(size, !amd)); tiles > 0; --tiles) {
    for (const bool one_buffer : {amd, true}) {
      const int64_t bytes = WideBytes(size, tiles, one_buffer);
      if (bytes > d.properties.shared_bytes) continue;
      s.row_tiles = tiles;
      s.one_buffer = one_buffer;
      s.shared_bytes = bytes;
      s.blocks_per_unit =
          static_cast<int>(std::clamp<int64_t>(UnitSharedBytes(d) / (bytes + 1024), 1, 2));
      return s;
    }
  }
  return s;
}

PrefillShape PrefillShapeOf(const ir::AttentionAttrs& a, ir::DType t, const DeviceFacts& d) {
  PrefillShape s;
  if (t == ir::DType::kF32) return s;
  s.tile_heads = TileHeads(a);
  if (IsWide(a)) {
    const WideShape wide = WideShapeOf(a, t, INT32_MAX, d);
    s.waves = wide.row_tiles * kWideParts;
    s.one_stage = wide.one_buffer;
    s.shared_bytes = wide.shared_bytes;
    s.row_tiles = wide.row_tiles;
    s.tile_tokens = wide.row_tiles * 16 / s.tile_heads;
    return s;
  }
  s.dim = a.head_dim <= 64 ? 64 : a.head_dim <= 128 ? 128 : 256;
  for (const int waves : {4, 2}) {
    for (const int stages : {2, 1}) {
      const int64_t bytes = PrefillBytes(s.dim, ir::Info(t).bytes, waves, stages, LaneRows(d));
      if (bytes > d.properties.shared_bytes) continue;
      s.waves = waves;
      s.one_stage = stages == 1;
      s.shared_bytes = bytes;
      s.tile_tokens = waves * 16 * PrefillTiles(s.dim, LaneRows(d)) / s.tile_heads;
      return s;
    }
  }
  return s;
}

}  // namespace vt::gpu
