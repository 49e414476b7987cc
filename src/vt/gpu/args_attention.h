// Arguments of the kernels of attention: the work list of a step, the writing of keys and values,
// and the two kernels that read them.
#pragma once

#include "vt/gpu/args.h"

namespace vt::gpu {

// Keys that a wave takes at once: kK of gpu.h's Mma.
inline constexpr int kTileKeys = 32;
// Threads of the kernel that makes the lists.
inline constexpr int kBeginThreads = 256;
// Costs that tiles of queries are sorted by.
inline constexpr int kCostClasses = 256;

// Queries of one token over keys [first, last) of its request: part `part` of `parts` that the
// token has. Parts of a token are in lanes `lane - part` on, one a lane.
struct alignas(16) DecodeItem {
  int32_t token, request;
  int32_t first, last;
  int32_t part, parts;
  int32_t lane;
  // Keys of its request that earlier steps wrote: others are of this step. ~keys: the token is long
  // (CachedKeys, IsLong).
  int32_t cached;
};

// A token that several parts have, for the kernels that add these up in a launch of their own.
struct alignas(16) DecodeJoin {
  int32_t token, lane, parts;  // lane: of part 0
  int32_t reserved;
};

// Tokens [begin, end) (rows of the step) of one request, which see keys [first, last) together.
struct QueryTile {
  int32_t request, begin, end;
  int32_t first, last;
  int32_t reserved[3];
};

// What all layers with the same window share in a step: tokens of requests that bring few, whose
// keys are dealt evenly to `lanes`, and tiles of queries of the other requests, those with most
// keys first.
struct AttentionList {
  DecodeItem* items = nullptr;
  int32_t* lane_begin = nullptr;     // [lanes + 1]: first item of each lane
  DecodeItem* lane_first = nullptr;  // [lanes]: that item
  DecodeJoin* joins = nullptr;       // at most one a lane, and one a token
  int32_t* join_count = nullptr;
  QueryTile* tiles = nullptr;
  QueryTile* unsorted = nullptr;
  int32_t* tile_count = nullptr;
  int32_t lanes = 0;
};

struct AttentionListSpec {
  AttentionList list;
  const int32_t *positions = nullptr, *query_start = nullptr, *seq_lens = nullptr;
  int32_t window = 0;  // see FirstKey
  int32_t causal = 1;
  int32_t decode_tokens = 1;  // requests of at most so many tokens are items, others tiles
  int32_t tile_tokens = 0;    // of a QueryTile at most; 0: there are none
  // Tiles that a block takes at once: lanes have a multiple.
  int32_t lane_step = 4;
  // Least tiles of keys of a lane: below, waiting for the other lanes costs more than they save.
  int32_t least_tiles = 4;
  // Tokens are not cut where all have at most so many tiles.
  int32_t whole_tiles = 0;
  // Tokens of more keys a part are long, which kernels may go about in another way.
  int32_t long_keys = INT32_MAX;
};

struct AttentionBeginArgs {
  static constexpr int kMostLists = 16;
  const Header* header = nullptr;
  AttentionListSpec lists[kMostLists];  // one a block
  int32_t* counters = nullptr;          // to be zeroed
  int32_t counter_count = 0;
};

// --- writing: a wave a head of q, k or v.
struct HeadNorm {
  const float* weight = nullptr;  // nullptr: none
  float eps = 0, offset = 0;
};
struct KvWriteArgs {
  const Header* header = nullptr;
  Rows q, q_out;  // rows of heads; q_heads may be 0
  Rows k, v;
  KvLayer kv;
  const int32_t* positions = nullptr;
  const int32_t* slots = nullptr;
  const float *q_table = nullptr, *k_table = nullptr;  // [positions][rotary_dim / 2] (cos, sin)
  HeadNorm q_norm, k_norm;
  int32_t q_heads = 0;
  int32_t rotary_dim = 0;  // 0: nothing is rotated
  int32_t interleaved = 0;
  int32_t aligned = 0;  // rows of q, k, v and q_out start on multiples of 16 bytes
};

// --- reading
struct AttentionArgs {
  const Header* header = nullptr;
  AttentionList list;
  Rows q, out;  // rows of tokens: heads * head_dim values
  KvLayer kv;
  const int32_t* positions = nullptr;
  const int32_t* block_table = nullptr;
  int32_t v_dim = 0;       // of a latent cache: how many of a vector's numbers are values
  int32_t group = 1;       // heads of q a head of k
  int32_t tile_rows = 16;  // rows of a group that a block takes
  int32_t row_tiles = 1;   // tiles of them
  int32_t window = 0, causal = 1;
  float scale_log2 = 1;  // times log2(e): softmax is of powers of two
  float softcap = 0;
  const float* sinks = nullptr;  // [heads]: a score of no key, or none
  int32_t block_shift = -1;      // log2 of block_size, if it is a power of two
  int32_t q_direct = 0;    // rows of q can be read 16 bytes at a time up to the padded head_dim
  int32_t aligned = 0;     // rows of q and out start on multiples of 16 bytes
  int32_t tile_heads = 1;  // heads of q in a tile of queries: divides the group
  int32_t one_stage = 0;   // shared memory has no room for two tiles of keys and values
  int32_t new_tokens = 1;  // that a request brings at most in a step, of those that are items
  int32_t one_buffer = 0;  // values take the place of keys: shared memory has no room for both
  // Another attention has waited since the step's beginning: the work list is there, and so is all
  // that earlier steps wrote.
  int32_t list_is_there = 0;
  // Of parts of a token: [2 * lanes][heads] of head_dim (v_dim) sums, and (maximum, sum of
  // weights).
  float* partial_sums = nullptr;
  float* partial_stats = nullptr;
  int32_t part_pitch = 0;       // of latent caches: values between sums of heads
  int32_t join_blocks = 1;      // and blocks that add up a head's
  int32_t* counters = nullptr;  // [lanes][kv_heads * row_tiles], zero between launches
  // Of long tokens (attention_long.h), a group an item, head of keys and tile of heads: its blocks'
  // sums and (maximum, weight), those of new keys behind them, and a counter, zero between
  // launches.
  int32_t long_tiles = 1;   // tiles of heads of a head of keys
  int32_t long_shares = 1;  // blocks of a group, which share the item's keys
  float* group_sums = nullptr;
  float* group_stats = nullptr;
  int32_t* group_counters = nullptr;
};

// Attention of few rows, with the writing of the step's own keys and values where `write.slots` is
// given: q, k and v are then as the linear made them. Requests may bring several tokens.
struct AttentionRowArgs {
  AttentionArgs read;
  KvWriteArgs write;  // of q its norm and its rotation; read.q is q
};

// --- shared memory, in values of `size` bytes. A row of keys is read 16 bytes a lane by four lanes
// a row, eight rows at a time: rows half of all banks apart do not collide. A row of values is read
// (across) by one lane, eight rows at a time: 16 bytes apart.
constexpr int KeyPitch(int dim, int size) {
  if (size == 4) return dim + 4;
  return dim % 64 == 0 ? dim + 32 : dim;
}
constexpr int ValuePitch(int dim, int size) { return dim + 16 / size; }
constexpr int DecodeQueryBytes(int dim, int size) { return 16 * KeyPitch(dim, size) * size; }
constexpr int DecodeKeyBytes(int dim, int size) { return kTileKeys * KeyPitch(dim, size) * size; }
// A wave's buffers, which hold its sums (16 rows of f32) and its rows' maxima and sums in the end.
constexpr int DecodeWaveBytes(int dim, int size, bool one_buffer) {
  const int keys = DecodeKeyBytes(dim, size);
  const int values = kTileKeys * ValuePitch(dim, size) * size;
  const int scratch = 16 * kTileKeys * size;  // of Mma's from_c
  const int both = (one_buffer ? (keys > values ? keys : values) : keys + values) + scratch;
  const int sums = 16 * (dim + 2) * 4;
  return both > sums ? both : sums;
}

// head_dim up to which a lane has registers for more than one sum of 16 rows. `lane_rows`: of how
// many rows of a C a lane holds values (2 on CUDA, 4 of CDNA's waves, 8 of RDNA's); it keeps a
// maximum, a weight and a factor for each of them.
constexpr int RoomyDim(int lane_rows) { return lane_rows < 8 ? 128 : 64; }
// Whether a decoding wave keeps its operands of q in registers; else they stand in shared memory.
constexpr bool KeepsQuery(int dim, int size, int lane_rows) {
  return size == 2 && dim <= RoomyDim(lane_rows);
}
// Tiles of 16 rows of a wave: two, so that what it reads of keys and values serves twice, where the
// sums of two fit in registers.
constexpr int PrefillTiles(int dim, int lane_rows) { return dim <= RoomyDim(lane_rows) ? 2 : 1; }
constexpr int PrefillStageBytes(int dim, int size) {
  return kTileKeys * (KeyPitch(dim, size) + ValuePitch(dim, size)) * size;
}
constexpr int PrefillBytes(int dim, int size, int waves, int stages, int lane_rows) {
  const int rows = waves * 16 * PrefillTiles(dim, lane_rows);
  return rows * KeyPitch(dim, size) * size + stages * PrefillStageBytes(dim, size) +
         waves * 16 * kTileKeys * size + rows * 8;
}

// Keys of a lane in turn, where as many lanes share a key of so many rows of q.
constexpr int RowDepth(int lanes, int rows) { return lanes / rows < 8 ? lanes / rows : 8; }
// What a wave leaves behind: sums of so many rows, their maxima and weights.
constexpr int RowWaveFloats(int dim, int rows) { return rows * dim + (2 * rows + 3) / 4 * 4; }
inline constexpr int kRowThreads = 256;

// Where a token is long, blocks of one row regroup: each takes as many heads as it has waves, and a
// share of the keys (attention_long.h).
constexpr int LongHeads(int wave) { return kRowThreads / wave < 8 ? kRowThreads / wave : 8; }
// Whether the kernel can: there must be registers for it, and a head as wide as its lanes.
inline constexpr int kLeastLongDim = 64;
constexpr bool CanBeLong(int lanes, int rows, bool same) {
  return rows == 1 && lanes * 8 >= kLeastLongDim && same;
}
// Parts of a group's sums: of each block, and of keys of this very step.
constexpr int LongParts(int shares) { return shares + 1; }
// What a block of one row gets through in so many rounds costs no more than meeting with others.
inline constexpr int kLongRounds = 4;
constexpr int LongKeys(int lanes) { return kLongRounds * kRowThreads / lanes * RowDepth(lanes, 1); }
// Shared memory: each wave's maxima and weights, then q's rows or, later, an eighth of waves' sums.
constexpr int LongStatsBytes(int wave) { return kRowThreads / wave * LongHeads(wave) * 8; }
constexpr int LongBytes(int dim, int wave) {
  const int query = LongHeads(wave) * KeyPitch(dim, 2) * 2,
            sums = kRowThreads / wave * LongHeads(wave) * 32 * 4;
  return LongStatsBytes(wave) + (query > sums ? query : sums);
}

}  // namespace vt::gpu
